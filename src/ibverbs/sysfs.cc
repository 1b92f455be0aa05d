// The two sysfs helpers that libibverbs exports, and what they find for Weft's devices.
//
// The devices have no entry in /sys. Programs that go through these helpers (ibv_devinfo does) get
// the files answered from here (sysfs_tree.h); for those that open files of /sys themselves `weft
// run` leads the paths elsewhere (paths/paths.c).

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/sysfs_tree.h"
#include "os/cancel.h"
#include "os/fd.h"

using namespace weft::ibverbs;

extern "C" {
const char* ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
}

namespace {

int copy_out(const std::string& text, char* buf, size_t size) {
  const size_t length = std::min(text.size(), size);
  std::memcpy(buf, text.data(), length);
  if (length < size) buf[length] = '\0';
  return static_cast<int>(length);
}

bool is_of_weft(std::string_view dir) {
  const std::string device = std::string(kSysfsDevices) + kNamePrefix;
  const std::string verbs = std::string(kSysfsUverbs) + kUverbsPrefix;
  return dir.starts_with(device) || dir.starts_with(verbs);
}

}  // namespace

extern "C" {

const char* ibv_get_sysfs_path(void) {
  static const std::string path = [] {
    const char* chosen = secure_getenv("SYSFS_PATH");
    std::string text = chosen != nullptr ? chosen : "/sys";
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    return text;
  }();
  return path.c_str();
}

// The length read, without the newline at the end; -1 with errno.
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  if (dir == nullptr || file == nullptr || buf == nullptr) return fail_minus(EINVAL);
  if (is_of_weft(dir)) {
    constexpr std::size_t kClassLength = sizeof "/sys/class/" - 1;
    const auto text = sysfs_text(std::string(dir + kClassLength) + "/" + file);
    return text ? copy_out(*text, buf, size) : fail_minus(ENOENT);
  }
  const std::string path = std::string(dir) + "/" + file;
  const weft::os::NoCancel guard;
  const weft::os::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return -1;
  const ssize_t got = read(fd.get(), buf, size);
  if (got <= 0) return fail_minus(got < 0 ? errno : ENODATA);
  ssize_t length = got;
  if (buf[length - 1] == '\n') --length;
  if (static_cast<size_t>(length) < size) buf[length] = '\0';
  return static_cast<int>(length);
}

}  // extern "C"
