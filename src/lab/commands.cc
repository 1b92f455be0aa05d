#include "lab/commands.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::lab {

namespace {

constexpr std::string_view kBetween = "---";
constexpr std::string_view kServer = "{server}";

void replace(std::string& text, std::string_view name, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
}

Words words_on(const Words& words, unsigned rank, unsigned hosts, bool loopback) {
  const auto name = loopback ? loopback_address : host_name;
  std::string all;
  for (unsigned one = 0; one < hosts; ++one) all += (one == 0 ? "" : ",") + name(one);
  Words out;
  for (std::string word : words) {
    if (word == kServer && rank == 0) continue;
    replace(word, kServer, name(0));
    replace(word, "{host}", name(rank));
    replace(word, "{rank}", std::to_string(rank));
    replace(word, "{address}", loopback ? name(rank) : host_address(rank));
    replace(word, "{hosts}", all);
    out.push_back(std::move(word));
  }
  return out;
}

std::vector<Words> split(const Words& words) {
  std::vector<Words> out(1);
  for (const std::string& word : words) {
    if (word == kBetween) {
      out.emplace_back();
    } else {
      out.back().push_back(word);
    }
  }
  return out;
}

}  // namespace

std::string host_name(unsigned rank) { return "h" + std::to_string(rank + 1); }

std::string host_address(unsigned rank) { return "10.76.0." + std::to_string(rank + 1); }

std::string loopback_address(unsigned rank) { return "127.0.0." + std::to_string(rank + 1); }

bool is_launcher(std::string_view program) {
  constexpr std::array<std::string_view, 4> kLaunchers{"mpirun", "mpiexec", "orterun", "prterun"};
  const std::string_view name = program.substr(program.rfind('/') + 1);
  const std::string_view first = name.substr(0, name.find('.'));  // mpirun.openmpi
  return std::ranges::find(kLaunchers, first) != kLaunchers.end();
}

tl::expected<std::vector<Command>, std::string> commands_of(const Words& words, unsigned hosts,
                                                            bool loopback) {
  const std::vector<Words> all = split(words);
  if (std::ranges::any_of(all, &Words::empty))
    return tl::unexpected<std::string>("a command is missing; write one on each side of ---");
  if (all.size() > hosts) {
    return tl::unexpected("there are " + std::to_string(all.size()) + " commands and " +
                          std::to_string(hosts) + " hosts; --hosts says how many there are");
  }
  std::vector<Command> out;
  const bool one = all.size() == 1 && is_launcher(all.front().front());
  const auto count = all.size() == 1 && !one ? hosts : static_cast<unsigned>(all.size());
  for (unsigned rank = 0; rank < count; ++rank)
    out.push_back({rank, words_on(all[all.size() == 1 ? 0 : rank], rank, hosts, loopback)});
  if (std::ranges::any_of(out, [](const Command& command) { return command.words.empty(); }))
    return tl::unexpected<std::string>("{server} is no command; write a program before it");
  return out;
}

}  // namespace weft::lab
