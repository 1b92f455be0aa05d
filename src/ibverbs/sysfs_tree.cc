#include "ibverbs/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/weft.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "os/cancel.h"
#include "os/say.h"

namespace weft::ibverbs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClass = "/sys/class/infiniband";

// As the kernel prints a GUID.
std::string guid_text(const DeviceInfo& device) {
  const __be64 guid = node_guid(device);
  std::array<std::uint8_t, 8> octets{};
  std::memcpy(octets.data(), &guid, octets.size());
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", octets[0],
                octets[1], octets[2], octets[3], octets[4], octets[5], octets[6], octets[7]);
  return text.data();
}

std::string gid_text(const Gid& gid) {
  std::string text;
  std::array<char, 8> word{};
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    std::snprintf(word.data(), word.size(), "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
    text += word.data();
  }
  return text;
}

// Only entries of the table that are in use have files.
void add_gids(std::vector<SysfsFile>& out, const std::string& port, const DeviceInfo& device) {
  for (std::size_t i = 0; i < device.gids.size(); ++i) {
    if (device.gids[i] == Gid{}) continue;
    const std::string index = std::to_string(i);
    out.push_back({port + "gids/" + index, gid_text(device.gids[i])});
    out.push_back({port + "gid_attrs/types/" + index, is_roce() ? "RoCE v2" : "IB/RoCE v1"});
    if (device.interface_index == 0) continue;
    out.push_back({port + "gid_attrs/ndevs/" + index, device.interface});
  }
}

void add_port(std::vector<SysfsFile>& out, const std::string& port, const DeviceInfo& device) {
  out.push_back({port + "state", "4: ACTIVE"});
  out.push_back({port + "phys_state", "5: LinkUp"});
  out.push_back({port + "rate", "100 Gb/sec (4X EDR)"});
  out.push_back({port + "link_layer", "Ethernet"});
  out.push_back({port + "lid", "0x0"});
  out.push_back({port + "sm_lid", "0x0"});
  out.push_back({port + "sm_sl", "0"});
  out.push_back({port + "lid_mask_count", "0"});
  out.push_back({port + "cap_mask", "0x00000000"});
  out.push_back({port + "pkeys/0", "0xffff"});
  add_gids(out, port, device);
}

void add_device(std::vector<SysfsFile>& out, const DeviceInfo& of) {
  const std::string device = std::string("infiniband/") + of.device->name + "/";
  const std::string verbs = std::string("infiniband_verbs/") + of.device->dev_name + "/";
  out.push_back({device + "node_type", is_roce() ? "1: CA" : "4: RNIC"});
  out.push_back({device + "node_desc", "weft"});
  out.push_back({device + "node_guid", guid_text(of)});
  out.push_back({device + "sys_image_guid", guid_text(of)});
  out.push_back({device + "board_id", "weft-software-rnic"});
  out.push_back({device + "hca_type", "weft"});
  out.push_back({device + "hw_rev", "0x0"});
  out.push_back({device + "fw_ver", std::string(version())});
  out.push_back({device + "device/vendor", "0x574546"});
  out.push_back({device + "device/device", "0x0001"});
  out.push_back({device + "device/numa_node", "-1"});
  if (of.interface_index != 0) {
    out.push_back({device + "device/net/" + of.interface, "/sys/class/net/" + of.interface, true});
  }
  add_port(out, device + "ports/1/", of);
  out.push_back({verbs + "ibdev", of.device->name});
  out.push_back({verbs + "abi_version", "1"});
}

// Real devices, so that a listing of the class shows them beside Weft's.
std::vector<SysfsFile> real_devices() {
  std::vector<SysfsFile> out;
  DIR* folder = opendir(kClass);
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.starts_with('.') || name.starts_with("weft")) continue;
    out.push_back({"infiniband/" + name, std::string(kClass) + "/" + name, true});
  }
  closedir(folder);
  return out;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool written = std::fputs(text.c_str(), file) >= 0 && std::fputc('\n', file) != EOF;
  return std::fclose(file) == 0 && written;
}

bool write_all(const fs::path& root, const std::vector<SysfsFile>& files) {
  std::error_code error;
  for (const SysfsFile& file : files) {
    const bool absolute = file.path.starts_with('/');
    const fs::path path = root / (absolute ? file.path.substr(1) : "sys/class/" + file.path);
    fs::create_directories(path.parent_path(), error);
    if (error) return false;
    if (!file.is_link) {
      if (!write_file(path, file.text)) return false;
    } else {
      fs::create_symlink(file.text, path, error);
      if (error) return false;
    }
  }
  return true;
}

// A folder of this user's alone, made if need be. Empty: there is none to be had.
std::string private_folder() {
  const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
  const std::string base =
      runtime != nullptr && runtime[0] == '/' && access(runtime, W_OK) == 0 ? runtime : "/tmp";
  const std::string folder = base + "/weft-" + std::to_string(geteuid());
  struct stat found {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return {};
  // Somebody else's, or a link: not to be trusted with what this user will read.
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & 022U) != 0) {
    errno = EPERM;
    return {};
  }
  return folder;
}

std::string name_of(const std::vector<SysfsFile>& files) {
  std::string all;
  for (const SysfsFile& file : files) all += file.path + '\n' + file.text + '\n';
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "sysfs-%016zx", std::hash<std::string>{}(all));
  return name.data();
}

// The tree's path; empty with errno.
std::string make_tree() {
  if (const auto known = load_devices(); !known) {
    errno = errno_of(known.error());
    return {};
  }
  std::vector<SysfsFile> files = sysfs_files();
  const std::vector<SysfsFile> real = real_devices();
  files.insert(files.end(), real.begin(), real.end());
  for (const DeviceInfo& one : device_table().devices) {
    if (is_roce() && one.is_there)
      files.push_back({std::string(kDeviceNodes) + one.device->dev_name, "/dev/null", true});
  }
  const std::string folder = private_folder();
  if (folder.empty()) return {};
  const std::string path = folder + "/" + name_of(files);
  if (access(path.c_str(), F_OK) == 0) return path;
  // Other processes may make it at the same time: it appears whole or not at all.
  const std::string fresh = path + "." + std::to_string(getpid());
  std::error_code ignored;
  const bool written = write_all(fresh, files);
  const int error = errno;
  if (written && rename(fresh.c_str(), path.c_str()) == 0) return path;
  fs::remove_all(fresh, ignored);
  if (access(path.c_str(), F_OK) == 0) return path;
  errno = error;
  return {};
}

}  // namespace

std::vector<SysfsFile> sysfs_files() {
  std::vector<SysfsFile> out;
  for (const DeviceInfo& one : device_table().devices) {
    if (one.is_there) add_device(out, one);
  }
  return out;
}

std::optional<std::string> sysfs_text(std::string_view path) {
  if (!load_devices()) return std::nullopt;
  for (const SysfsFile& file : sysfs_files()) {
    if (file.path == path && !file.is_link) return file.text;
  }
  return std::nullopt;
}

}  // namespace weft::ibverbs

extern "C" {

const char* weft_ibv_sysfs_tree() {
  static const auto* tree = [] {
    const weft::os::NoCancel guard;
    auto* path = new std::string(weft::ibverbs::make_tree());
    if (path->empty()) {
      weft::os::say("weft: no files for its devices below /sys: cannot write them: %s\n",
                    std::strerror(errno));
    }
    return path;
  }();
  return tree->empty() ? nullptr : tree->c_str();
}

}  // extern "C"
