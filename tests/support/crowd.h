// Sockets that connect to a port, say something or nothing, and stay.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace weft::test {

class Crowd {
 public:
  static constexpr std::size_t kSize = 10000;

  // Lets this process open the crowd and `others` beside it. False: it may not.
  [[nodiscard]] static bool has_room(std::size_t others) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t wanted = kSize + others;
    if (limit.rlim_cur < wanted) limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur >= wanted;
  }

  // To this port of 127.0.0.1.
  Crowd(std::uint16_t port, std::string_view says, std::size_t size = kSize) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (std::size_t i = 0; i < size; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd < 0) throw std::runtime_error("no socket for the crowd");
      sockets_.push_back(fd);
      // Inside a machine the handshake is over now, unless the kernel's queue is full: then it goes
      // on by itself, and what is said is lost.
      static_cast<void>(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to));
      if (!says.empty()) say_at(fd, says);
    }
  }
  ~Crowd() {
    for (const int fd : sockets_) ::close(fd);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Each of them, what has been closed too.
  void say(std::string_view octets) const {
    for (const int fd : sockets_) say_at(fd, octets);
  }
  // This process has no more descriptors beside the crowd's than `limit`, and some for other
  // things. (Those of a test before may still be closed: ask again.)
  [[nodiscard]] bool is_alone_but_for(std::size_t limit) const {
    constexpr std::ptrdiff_t kOthers = 100;
    const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    return open <= static_cast<std::ptrdiff_t>(sockets_.size() + limit) + kOthers;
  }

 private:
  static void say_at(int fd, std::string_view octets) {
    static_cast<void>(!::send(fd, octets.data(), octets.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  std::vector<int> sockets_;
};

}  // namespace weft::test
