#include "check/module/peer_names.h"

#include <netdb.h>

#include <cstdlib>
#include <memory>

#include "check/module/output.h"
#include "os/host_text.h"

namespace weft::check {
namespace {

// That of `weft lab run --loopback`; empty: it is none.
std::string on_loopback(const std::string& name) {
  constexpr std::size_t kMostDigits = 2;
  const bool is_one = std::getenv("WEFT_LAB_LOOPBACK") != nullptr && name.size() > 1 &&
                      name.size() <= 1 + kMostDigits && name.front() == 'h' &&
                      name.find_first_not_of("0123456789", 1) == std::string::npos;
  return is_one ? "127.0.0." + name.substr(1) : "";
}

}  // namespace

PeerNames::PeerNames(const std::map<std::string, int>& wanted) {
  for (const auto& [name, line] : wanted) {
    if (const std::string address = on_loopback(name); !address.empty()) {
      names_.emplace(address, name);
      continue;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;  // each address once
    addrinfo* found = nullptr;
    const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
    if (error != 0) {
      tell_user("weft faults: line %d: %s: %s; no queue pair is one to this host\n", line,
                name.c_str(), gai_strerror(error));
      continue;
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
      names_.emplace(os::host_text(one->ai_addr, one->ai_addrlen), name);
  }
}

std::vector<std::string> PeerNames::of(const std::string& host) const {
  std::vector<std::string> out;
  const auto [first, last] = names_.equal_range(host);
  for (auto at = first; at != last; ++at) out.push_back(at->second);
  return out;
}

}  // namespace weft::check
