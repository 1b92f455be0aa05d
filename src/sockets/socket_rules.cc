#include "sockets/socket_rules.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

constexpr std::size_t kFileMost = 64 * 1024;
constexpr std::size_t kWordMost = 128;

// One line, word by word.
struct Line {
  const char* text;
  const char* at;
  const char* end;

  // False: no more words. `column` counts from 1.
  bool next(char (&word)[kWordMost], int& column) {
    assert(text <= at && at <= end);
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) ++at;
    column = static_cast<int>(at - text) + 1;
    if (at == end || *at == '#') return false;
    std::size_t n = 0;
    while (at < end && *at != ' ' && *at != '\t' && *at != '\r' && *at != '#') {
      if (n + 1 < kWordMost) word[n++] = *at;
      ++at;
    }
    assert(n < kWordMost);
    word[n] = '\0';
    return true;
  }
};

bool is(const char* word, const char* name) { return std::strcmp(word, name) == 0; }

bool number(const char* text, unsigned most, unsigned& out) {
  if (*text == '\0') return false;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*end != '\0' || text[0] < '0' || text[0] > '9' || value > most) return false;
  out = static_cast<unsigned>(value);
  return true;
}

// "*", "80", "80-90"
bool parse_ports(char* text, Rule& rule) {
  if (is(text, "*")) return true;
  char* dash = std::strchr(text, '-');
  if (dash != nullptr) *dash = '\0';
  unsigned first = 0;
  unsigned last = 0;
  if (!number(text, 65535, first)) return false;
  last = first;
  if (dash != nullptr && (!number(dash + 1, 65535, last) || last < first)) return false;
  rule.port_first = static_cast<std::uint16_t>(first);
  rule.port_last = static_cast<std::uint16_t>(last);
  return true;
}

// "*", "10.0.0.0/8", "[fd00::]/8"
bool parse_address(char* text, Rule& rule) {
  if (is(text, "*")) return true;
  char* slash = std::strchr(text, '/');
  if (slash != nullptr) *slash = '\0';
  const std::size_t length = std::strlen(text);
  unsigned most = 32;
  if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
    text[length - 1] = '\0';
    ++text;
    rule.family = AF_INET6;
    most = 128;
  } else {
    rule.family = AF_INET;
  }
  if (inet_pton(rule.family, text, rule.address) != 1) return false;
  rule.prefix = most;
  return slash == nullptr || number(slash + 1, most, rule.prefix);
}

bool same_prefix(const std::uint8_t* a, const std::uint8_t* b, unsigned bits) {
  assert(bits <= 128);
  const unsigned whole = bits / 8;
  if (std::memcmp(a, b, whole) != 0) return false;
  const unsigned rest = bits % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xffU << (8 - rest));
  return (a[whole] & mask) == (b[whole] & mask);
}

bool fits_address(const Rule& rule, const sockaddr* address) {
  std::uint16_t port = 0;
  const std::uint8_t* octets = nullptr;
  int family = address->sa_family;
  if (family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    port = ntohs(v4->sin_port);
    octets = reinterpret_cast<const std::uint8_t*>(&v4->sin_addr);
  } else if (family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    port = ntohs(v6->sin6_port);
    octets = v6->sin6_addr.s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && rule.family == AF_INET) {
      octets += 12;
      family = AF_INET;
    }
  } else {
    return false;
  }
  if (port < rule.port_first || port > rule.port_last) return false;
  if (rule.family == AF_UNSPEC) return true;
  return rule.family == family && same_prefix(rule.address, octets, rule.prefix);
}

// Null, or what is wrong with the line. `column` is where.
const char* parse_line(Line& line, Rule& rule, int& column, bool& empty) {
  char word[kWordMost];
  empty = !line.next(word, column);
  if (empty) return nullptr;
  if (!is(word, "use")) return "a rule begins with 'use'";
  if (!line.next(word, column)) return "the way is missing: tcp";
  if (!is(word, "tcp")) return "the way can be tcp only";
  if (!line.next(word, column)) return "the role is missing: connect, listen or *";
  rule.connect = is(word, "connect") || is(word, "*");
  rule.listen = is(word, "listen") || is(word, "*");
  if (!rule.connect && !rule.listen) return "the role can be connect, listen or *";
  if (!line.next(word, column)) return "the program is missing: its file name, or *";
  if (std::strlen(word) >= sizeof rule.program || std::strchr(word, '/') != nullptr) {
    return "the program is a file name without a folder, of at most 63 characters, or *";
  }
  std::memcpy(rule.program, word, std::strlen(word) + 1);
  if (!line.next(word, column)) return "address and port are missing: ADDRESS:PORT, or *:*";
  char* colon = std::strrchr(word, ':');
  if (colon == nullptr) return "address and port: 10.0.0.0/8:80, [fd00::]/8:80-90, or *:*";
  *colon = '\0';
  if (!parse_ports(colon + 1, rule)) return "the port can be 0 to 65535, FIRST-LAST, or *";
  if (!parse_address(word, rule)) return "the address can be 10.0.0.0/8, [fd00::]/8, or *";
  if (line.next(word, column)) return "there is something behind the rule; comments begin with #";
  return nullptr;
}

}  // namespace

bool Rules::parse(const char* text, const char* name, char* why, std::size_t why_size) {
  count_ = 0;
  int number = 0;
  for (const char* at = text; *at != '\0';) {
    const char* end = std::strchr(at, '\n');
    if (end == nullptr) end = at + std::strlen(at);
    ++number;
    Line line{at, at, end};
    Rule rule;
    int column = 1;
    bool empty = false;
    const char* wrong = parse_line(line, rule, column, empty);
    if (wrong == nullptr && !empty && count_ == kMost) wrong = "there are more than 256 rules";
    if (wrong != nullptr) {
      std::snprintf(why, why_size, "%s:%d:%d: %s", name, number, column, wrong);
      count_ = 0;
      return false;
    }
    if (!empty) {
      rule.line = number;
      assert(count_ < kMost && rule.port_first <= rule.port_last);
      rules_[count_++] = rule;
    }
    at = *end == '\0' ? end : end + 1;
  }
  return true;
}

bool Rules::load(const char* path, char* why, std::size_t why_size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    std::snprintf(why, why_size, "%s: %s", path, std::strerror(errno));
    return false;
  }
  auto* text = static_cast<char*>(std::calloc(1, kFileMost + 1));
  std::size_t size = 0;
  while (text != nullptr && size < kFileMost) {
    const ssize_t n = real().read(fd, text + size, kFileMost - size);
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
    assert(size <= kFileMost);
  }
  real().close(fd);
  if (text == nullptr || size == kFileMost) {
    std::snprintf(why, why_size, "%s: larger than 64 KiB", path);
    std::free(text);
    return false;
  }
  const bool good = parse(text, path, why, why_size);
  std::free(text);
  return good;
}

const Rule* Rules::find(Role role, const char* program, const sockaddr* address) const {
  for (std::size_t i = 0; i < count_; ++i) {
    const Rule& rule = rules_[i];
    if (role == Role::kConnect ? !rule.connect : !rule.listen) continue;
    if (!is(rule.program, "*") && !is(rule.program, program)) continue;
    if (fits_address(rule, address)) return &rule;
  }
  return nullptr;
}

}  // namespace weft::sockets
