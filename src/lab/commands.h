// Which command `weft lab run` starts on which host. No operating system.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace weft::lab {

inline constexpr unsigned kMostHosts = 64;

using Words = std::vector<std::string>;

// "h1" for rank 0.
[[nodiscard]] std::string host_name(unsigned rank);
// "10.76.0.1" for rank 0.
[[nodiscard]] std::string host_address(unsigned rank);
// That of a host that is none: "127.0.0.1" for rank 0. It has no name but that.
[[nodiscard]] std::string loopback_address(unsigned rank);

struct Command {
  unsigned rank = 0;  // of the host that it runs on
  Words words;
};

// One command runs on every host, or on the first alone when it is a launcher such as mpirun. More,
// with the word "---" between, run on a host each. In words, {host}, {rank}, {address} and {hosts}
// (all names, with commas between) are replaced; the word {server} is nothing on the first host,
// and its name on others. On `loopback`, hosts have addresses for names. The error says what is
// wrong and what to write.
[[nodiscard]] tl::expected<std::vector<Command>, std::string> commands_of(const Words& words,
                                                                          unsigned hosts,
                                                                          bool loopback = false);

// One of those that start programs on other hosts by themselves: mpirun, mpiexec, orterun, prterun.
[[nodiscard]] bool is_launcher(std::string_view program);

}  // namespace weft::lab
