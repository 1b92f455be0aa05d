// `weft stat --sockets` asks here, through the library, which knows the layout. What another
// process has written is copied and bounded before it is used.
#include <arpa/inet.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "sockets/granted/number_states.h"

namespace weft::sockets::granted {
namespace {

using Show = void (*)(void* context, int fd, const char* role, const char* path, const char* local,
                      const char* peer, const char* reason, long long since_ms);

std::string file_of(int pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

struct Tcp {
  std::string local;
  std::string peer;
  bool listens = false;
};

// "0100007F:1F90" as the kernel writes it: words of 32 bits in the machine's order, and the port.
std::string address_text(const std::string& kernels) {
  const std::size_t colon = kernels.find(':');
  if (colon != 8 && colon != 32) return "?";
  std::uint32_t words[4] = {};
  for (std::size_t i = 0; i * 8 < colon; ++i) {
    words[i] = static_cast<std::uint32_t>(std::stoul(kernels.substr(i * 8, 8), nullptr, 16));
  }
  char text[INET6_ADDRSTRLEN] = "?";
  const bool v4 = colon == 8;
  inet_ntop(v4 ? AF_INET : AF_INET6, words, text, sizeof text);
  const std::string port = std::to_string(std::stoul(kernels.substr(colon + 1), nullptr, 16));
  return v4 ? text + (":" + port) : "[" + std::string(text) + "]:" + port;
}

// The TCP sockets of the network that the process is in, by inode.
std::map<unsigned long, Tcp> tcp_sockets(int pid) {
  constexpr const char* kListens = "0A";
  std::map<unsigned long, Tcp> out;
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    std::ifstream file(file_of(pid, table));
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number;
      std::string local;
      std::string peer;
      std::string state;
      std::string skipped;
      unsigned long inode = 0;
      words >> number >> local >> peer >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      if (!(words >> inode)) continue;
      const bool listens = state == kListens;
      out[inode] = {address_text(local), listens ? "-" : address_text(peer), listens};
    }
  }
  return out;
}

// The length of a line's range, "from-to" in hexadecimal.
std::uint64_t bytes_of_range(const std::string& line) {
  char* behind = nullptr;
  const std::uint64_t from = std::strtoull(line.c_str(), &behind, 16);
  return *behind == '-' ? std::strtoull(behind + 1, nullptr, 16) - from : 0;
}

// As it is mapped: whole pages.
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kTableBytes = (sizeof(StateTable) + kPage - 1) / kPage * kPage;

struct Table {
  const StateTable* at = nullptr;
  bool hidden = false;  // there may be one, and it can't be read from here
};

// Whether its segments' ids mean here what they mean there.
bool shares_segments(int pid) {
  std::error_code error;
  const auto theirs = std::filesystem::read_symlink(file_of(pid, "ns/ipc"), error);
  if (error) return true;
  return theirs == std::filesystem::read_symlink("/proc/self/ns/ipc", error);
}

// Without a table, and none hidden, no connection of the process was ever busy.
Table attach(int pid) {
  Table out;
  const bool shared = shares_segments(pid);
  std::ifstream maps(file_of(pid, "maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/SYSV00000000") == std::string::npos) continue;
    // Its inode is the segment's id.
    std::istringstream words(line);
    std::string skipped;
    int id = -1;
    for (int i = 0; i < 4; ++i) words >> skipped;
    if (!(words >> id) || bytes_of_range(line) != kTableBytes) continue;
    shmid_ds is{};
    void* at = reinterpret_cast<void*>(-1);
    if (shared && shmctl(id, IPC_STAT, &is) == 0 && is.shm_segsz == sizeof(StateTable)) {
      at = shmat(id, nullptr, SHM_RDONLY);
    }
    if (at == reinterpret_cast<void*>(-1)) {
      out.hidden = true;
      continue;
    }
    const auto* table = static_cast<const StateTable*>(at);
    if (table->magic == StateTable::kMagic) return {table, false};
    shmdt(at);
  }
  return out;
}

bool is_under_weft(int pid) {
  std::ifstream maps(file_of(pid, "maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libweft-sockets.so") != std::string::npos) return true;
  }
  return false;
}

NumberState state_of(const Table& table, int fd) {
  if (table.at == nullptr) return {table.hidden ? Why::kHidden : Why::kQuiet, false, 0};
  if (fd < 0 || static_cast<std::size_t>(fd) >= StateTable::kMost) return {};
  return NumberState::of(table.at->words[static_cast<std::size_t>(fd)].load());
}

void show(int fd, const Tcp& socket, const Table& table, Show visit, void* context) {
  if (socket.listens) {
    visit(context, fd, "listen", "tcp", socket.local.c_str(), "-", "its connections may get rings",
          0);
    return;
  }
  const NumberState state = state_of(table, fd);
  const char* role = state.since_ms == 0 ? "-" : state.accepted ? "accept" : "connect";
  visit(context, fd, role, path_of(state.why), socket.local.c_str(), socket.peer.c_str(),
        reason_of(state.why), state.since_ms);
}

}  // namespace
}  // namespace weft::sockets::granted

using namespace weft::sockets::granted;

// Calls `visit` for each TCP socket of process `pid`. 0, or an errno:
//   ENOENT   there is no such process       EACCES, EPERM   it belongs to another user
//   ENODATA  it does not run under `weft run --sockets`
extern "C" __attribute__((visibility("default"))) int weft_sockets_list(int pid, Show visit,
                                                                        void* context) {
  std::error_code error;
  std::filesystem::directory_iterator at(file_of(pid, "fd"), error);
  if (error) return error.value();
  if (!is_under_weft(pid)) return ENODATA;
  const std::map<unsigned long, Tcp> sockets = tcp_sockets(pid);
  const Table table = attach(pid);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    constexpr const char kSocket[] = "socket:[";
    const std::filesystem::directory_entry& entry = *at;
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || !target.starts_with(kSocket)) continue;
    const auto found = sockets.find(std::strtoul(target.c_str() + sizeof kSocket - 1, nullptr, 10));
    const int fd = std::atoi(entry.path().filename().c_str());
    if (found != sockets.end()) show(fd, found->second, table, visit, context);
  }
  if (table.at != nullptr) shmdt(table.at);
  return 0;
}
