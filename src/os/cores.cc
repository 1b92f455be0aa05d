#include "os/cores.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "os/cancel.h"

namespace weft::os {
namespace {

// The first octets of a file of the kernel's; empty: it is not there.
std::string text_of(const std::string& path) {
  std::array<char, 4096> text;
  const NoCancel guard;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : -1;
  return size <= 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(size));
}

// The number that `text` begins with; `text` goes on behind it and one separator. Nullopt: "max",
// -1, or none.
std::optional<std::uint64_t> next_number(std::string_view& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  text = rest == end ? std::string_view() : std::string_view(rest + 1, end);
  return value;
}

bool is_less_than_a_core(std::optional<std::uint64_t> quota_us,
                         std::optional<std::uint64_t> period_us) {
  return quota_us && period_us && *quota_us < *period_us;
}

bool has_small_quota(const std::string& folder, bool version_2) {
  if (version_2) {
    const std::string max = text_of(folder + "/cpu.max");  // "QUOTA PERIOD", or "max PERIOD"
    std::string_view text(max);
    const auto quota = next_number(text);
    return is_less_than_a_core(quota, quota ? next_number(text) : std::nullopt);
  }
  const std::string quota = text_of(folder + "/cpu.cfs_quota_us");
  const std::string period = text_of(folder + "/cpu.cfs_period_us");
  std::string_view quota_text(quota);
  std::string_view period_text(period);
  return is_less_than_a_core(next_number(quota_text), next_number(period_text));
}

// The group's, or that of one around it. Inside a container the path may be one of the host's:
// folders that are not there have no quota, and the top one is the container's own.
bool has_small_quota_up_from(const std::string& mount, std::string_view group, bool version_2) {
  while (true) {
    if (has_small_quota(mount + std::string(group), version_2)) return true;
    const std::size_t slash = group.rfind('/');
    if (slash == std::string_view::npos) return false;
    group = group.substr(0, slash);
  }
}

// Has `list`, names with commas between them, this one?
bool names(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// By lines "NUMBER:CONTROLLERS:PATH" of cgroups(7); version 2 has number 0 and no controllers.
bool groups_have_small_quota(const std::string& root) {
  const std::string groups = text_of(root + "/proc/self/cgroup");
  std::string_view rest(groups);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && !names(controllers, "cpu")) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (version_2 ? "" : "/cpu");
    if (has_small_quota_up_from(mount, line.substr(second + 1), version_2)) return true;
  }
  return false;
}

}  // namespace

unsigned usable_cores(const std::string& root) {
  if (groups_have_small_quota(root)) return 1;
  return static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

Cores::Cores()
    : load_(uncancelled([] { return ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC); })),
      online_(static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)))) {}

std::optional<bool> Cores::are_enough() const {
  std::array<char, 64> text;
  const NoCancel guard;
  const ssize_t size = load_ ? ::pread(load_.get(), text.data(), text.size(), 0) : -1;
  if (size <= 0) return std::nullopt;
  const auto running = running_threads({text.data(), static_cast<std::size_t>(size)});
  if (!running) return std::nullopt;
  return *running <= online_;
}

std::optional<unsigned> running_threads(std::string_view loadavg) {
  for (int column = 0; column < 3; ++column) {
    const std::size_t space = loadavg.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    loadavg.remove_prefix(space + 1);
  }
  unsigned running = 0;
  const char* const end = loadavg.data() + loadavg.size();
  const auto [rest, error] = std::from_chars(loadavg.data(), end, running);
  if (error != std::errc() || rest == end || *rest != '/' || running == 0) return std::nullopt;
  return running;
}

}  // namespace weft::os
