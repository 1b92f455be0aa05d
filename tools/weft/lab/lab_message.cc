#include "weft/lab/lab_message.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace weft::cli {
namespace {

constexpr std::size_t kMostFds = 4;
constexpr std::size_t kShortText = 4 << 10;    // sockets take it; a longer one goes in a file
constexpr std::size_t kLongestText = 4 << 20;  // an environment and a command

struct Head {
  std::uint32_t kind = 0;
  std::uint32_t id = 0;
  std::int32_t value = 0;
  std::uint32_t long_text = 0;  // 1: it is in a file in memory, the last descriptor
};

struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostFds)> bytes{};
};

void put_fds(msghdr& out, Control& control, const std::vector<int>& fds) {
  if (fds.empty()) return;
  out.msg_control = control.bytes.data();
  out.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* const head = CMSG_FIRSTHDR(&out);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const int fd = fds[i];
    std::memcpy(CMSG_DATA(head) + i * sizeof fd, &fd, sizeof fd);
  }
}

std::vector<UniqueFd> fds_of(msghdr& in) {
  std::vector<UniqueFd> out;
  for (cmsghdr* head = CMSG_FIRSTHDR(&in); head != nullptr; head = CMSG_NXTHDR(&in, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      out.emplace_back(fd);
    }
  }
  return out;
}

UniqueFd file_of(const std::string& text) {
  UniqueFd file(memfd_create("weft-lab", MFD_CLOEXEC));
  for (std::size_t done = 0; file && done < text.size();) {
    const ssize_t n = write(file.get(), text.data() + done, text.size() - done);
    if (n < 0) return {};
    done += static_cast<std::size_t>(n);
  }
  return file;
}

// Nothing: it is no such file. Files of other kinds have no seals; they might keep a reader
// waiting.
std::optional<std::string> text_of(const UniqueFd& file) {
  struct stat about {};
  if (fcntl(file.get(), F_GET_SEALS) < 0 || fstat(file.get(), &about) != 0) return std::nullopt;
  std::string out(std::min(static_cast<std::size_t>(about.st_size), kLongestText), '\0');
  const ssize_t got = pread(file.get(), out.data(), out.size(), 0);
  if (got != static_cast<ssize_t>(out.size())) return std::nullopt;
  return out;
}

}  // namespace

std::string as_text(const LabExec& exec) {
  std::string out;
  for (const std::string* part : {&exec.host, &exec.command, &exec.folder}) {
    out += *part;
    out += '\0';
  }
  for (const std::string& variable : exec.environment) {
    out += variable;
    out += '\0';
  }
  return out;
}

LabExec exec_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  constexpr std::size_t kBeforeEnvironment = 3;
  if (parts.size() < kBeforeEnvironment) return {};
  return {parts[0], parts[1], parts[2], {parts.begin() + kBeforeEnvironment, parts.end()}};
}

Outcome<LabPair> make_lab_pair() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failure(fmt::format("a lab needs sockets: {}", std::strerror(errno)));
  return LabPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool send_message(int fd, const LabMessage& message, SendWait wait) {
  const bool is_long = message.text.size() > kShortText;
  if (message.text.size() > kLongestText || message.fds.size() + (is_long ? 1 : 0) > kMostFds) {
    errno = E2BIG;
    return false;
  }
  std::vector<int> fds;
  for (const UniqueFd& one : message.fds) fds.push_back(one.get());
  UniqueFd file;
  if (is_long) {
    file = file_of(message.text);
    fds.push_back(file.get());
  }
  Head head{static_cast<std::uint32_t>(message.kind), message.id, message.value, is_long ? 1U : 0};
  iovec parts[2] = {{&head, sizeof head},
                    {const_cast<char*>(message.text.data()), is_long ? 0 : message.text.size()}};
  Control control;
  msghdr out{};
  out.msg_iov = parts;
  out.msg_iovlen = 2;
  put_fds(out, control, fds);
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd, &out, MSG_NOSIGNAL | (wait == SendWait::kNo ? MSG_DONTWAIT : 0));
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool receive_message(int fd, LabMessage& message) {
  Head head;
  std::string text(kShortText, '\0');
  iovec parts[2] = {{&head, sizeof head}, {text.data(), text.size()}};
  Control control;
  msghdr in{};
  in.msg_iov = parts;
  in.msg_iovlen = 2;
  in.msg_control = control.bytes.data();
  in.msg_controllen = control.bytes.size();
  ssize_t got = 0;
  do {
    got = recvmsg(fd, &in, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  std::vector<UniqueFd> fds = fds_of(in);
  if (got < static_cast<ssize_t>(sizeof head)) return false;
  text.resize(static_cast<std::size_t>(got) - sizeof head);
  if (head.long_text != 0) {
    std::optional<std::string> whole = fds.empty() ? std::nullopt : text_of(fds.back());
    if (!whole) return false;
    text = std::move(*whole);
    fds.pop_back();
  }
  message = {static_cast<LabMessage::Kind>(head.kind), head.id, head.value, std::move(text),
             std::move(fds)};
  return true;
}

}  // namespace weft::cli
