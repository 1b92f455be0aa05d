#include "weft/stat/sockets.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "weft/common/message.h"
#include "weft/run/program.h"

namespace weft::cli {
namespace {

using Visit = void (*)(void*, int, const char*, const char*, const char*, const char*, const char*,
                       long long);
using List = int (*)(int, Visit, void*);

void add_row(void* rows, int fd, const char* role, const char* path, const char* local,
             const char* peer, const char* reason, long long since_ms) {
  static_cast<std::vector<SocketRow>*>(rows)->push_back(
      {fd, role, path, local, peer, reason, since_ms});
}

std::string explain(int pid, int error) {
  switch (error) {
    case ENOENT: return fmt::format("there is no process {}", pid);
    case EACCES:
    case EPERM:
      return fmt::format("process {} belongs to another user: run `weft stat` as that user", pid);
    case ENODATA:
      return fmt::format(
          "process {} does not run under Weft: start it with `weft run --sockets -- PROGRAM`", pid);
    default: return fmt::format("process {}: {}", pid, std::strerror(error));
  }
}

}  // namespace

Outcome<std::vector<SocketRow>> read_sockets(int pid) {
  const Outcome<std::string> folder = find_dropin_folder();
  if (!folder) return tl::unexpected(folder.error());
  const std::string library = *folder + "/libweft-sockets.so";
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return failure(dlerror());
  const auto list = reinterpret_cast<List>(dlsym(handle, "weft_sockets_list"));
  if (list == nullptr) return failure(fmt::format("{} is of another version of Weft", library));
  std::vector<SocketRow> rows;
  const int error = list(pid, add_row, &rows);
  if (error != 0) return failure(explain(pid, error));
  std::sort(rows.begin(), rows.end(),
            [](const SocketRow& a, const SocketRow& b) { return a.fd < b.fd; });
  return rows;
}

namespace {

// "14:03:59" of today's and older days alike, as `ss` and `ps` have it.
std::string time_text(std::int64_t ms) {
  if (ms == 0) return "-";
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  char out[16] = "-";
  if (localtime_r(&seconds, &parts) != nullptr) std::strftime(out, sizeof out, "%H:%M:%S", &parts);
  return out;
}

}  // namespace

std::string sockets_text(const std::vector<SocketRow>& rows) {
  const char* const row = "{:>5} {:<8} {:<5} {:<9} {:<22} {:<22} {}\n";
  std::string out =
      fmt::format(fmt::runtime(row), "fd", "role", "path", "since", "local", "peer", "why");
  for (const SocketRow& r : rows) {
    out += fmt::format(fmt::runtime(row), r.fd, r.role, r.path, time_text(r.since_ms), r.local,
                       r.peer, r.reason);
  }
  return out;
}

std::string sockets_json(int pid, const std::vector<SocketRow>& rows) {
  std::string out;
  for (const SocketRow& r : rows) {
    const nlohmann::ordered_json line{
        {"pid", pid},       {"fd", r.fd},     {"role", r.role},     {"path", r.path},
        {"local", r.local}, {"peer", r.peer}, {"reason", r.reason}, {"since_ms", r.since_ms}};
    out += line.dump() + "\n";
  }
  return out;
}

}  // namespace weft::cli
