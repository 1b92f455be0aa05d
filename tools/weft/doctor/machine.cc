#include "weft/doctor/machine.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/config.h>
#include <weft/device.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "weft/common/net.h"
#include "weft/common/sysinfo.h"
#include "weft/run/program.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// The number at `position` of a file with numbers.
std::optional<std::uint64_t> number_in(const std::string& path, int position = 0) {
  std::istringstream words(first_line(path));
  std::uint64_t value = 0;
  for (int i = 0; i <= position; ++i) {
    if (!(words >> value)) return std::nullopt;
  }
  return value;
}

void look_at_settings(Machine& m) {
  std::string why;
  const auto config = Config::load(&why);
  if (!config) {
    m.configuration_error = why;
    return;
  }
  m.congestion_wanted = config->loopback_congestion == "keep" ? "" : config->loopback_congestion;
}

void look_at_kernel(Machine& m) {
  const std::string ipv4 = "/proc/sys/net/ipv4/tcp_";
  m.kernel = kernel_text();
  m.cpus = allowed_cpus().size();
  m.crc_method = crc_method();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    m.open_files_soft = files.rlim_cur;
    m.open_files_hard = files.rlim_max;
  }
  m.congestion_default = first_line(ipv4 + "congestion_control");
  m.congestion_allowed = first_line(ipv4 + "allowed_congestion_control");
  m.congestion_available = first_line(ipv4 + "available_congestion_control");
  m.receive_buffer_max = number_in(ipv4 + "rmem", 2);
  m.send_buffer_max = number_in(ipv4 + "wmem", 2);
  m.slow_start_after_idle = number_in(ipv4 + "slow_start_after_idle");
  m.somaxconn = number_in("/proc/sys/net/core/somaxconn");
}

// libibverbs.so.1.14.44.0 -> 44
std::optional<unsigned> release_of(const fs::path& library) {
  std::error_code error;
  const std::string name = fs::canonical(library, error).filename().string();
  const std::string start = "libibverbs.so.1.";
  if (error || !name.starts_with(start)) return std::nullopt;
  const std::size_t dot = name.find('.', start.size());
  if (dot == std::string::npos) return std::nullopt;
  unsigned release = 0;
  const auto [end, failed] =
      std::from_chars(name.data() + dot + 1, name.data() + name.size(), release);
  return failed == std::errc{} ? std::optional(release) : std::nullopt;
}

void look_at_verbs(Machine& m) {
  if (auto folder = find_dropin_folder()) {
    m.dropin_folder = *folder;
  } else {
    m.dropin_error = folder.error().message;
  }
  // By the loader's search path. This program itself is not linked with libibverbs.
  if (void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL); library != nullptr) {
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) m.system_verbs = map->l_name;
    m.rdma_core = release_of(m.system_verbs);
    dlclose(library);
  }
  m.kernel_rdma = look_at_kernel_rdma();
  if (const char* wish = std::getenv("WEFT_REAL_CM"); wish != nullptr) m.cm_wish = wish;
}

bool is_taken(std::uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 ||
         listen(fd.get(), 1) != 0;
}

// Tried in a child, since it cannot be undone.
bool can_make_network_namespace() {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    const int flags = geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET;
    _exit(unshare(flags) == 0 ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

Machine look_at_machine() {
  Machine m;
  look_at_settings(m);
  look_at_kernel(m);
  look_at_verbs(m);
  m.ports = {{7471, "weft perf", is_taken(7471)},
             {7472, "weft ping", is_taken(7472)},
             {7473, "weft selftest", is_taken(7473)}};
  m.root = geteuid() == 0;
  m.network_namespaces = can_make_network_namespace();
  return m;
}

}  // namespace weft::cli
