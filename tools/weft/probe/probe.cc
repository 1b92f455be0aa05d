// `weft probe`: what a verbs device promises and refuses, for `weft run --like`. weft-probe asks
// it, a program against the system's libibverbs: this one has Weft's engine in it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "like/known.h"
#include "weft/common/arguments.h"
#include "weft/common/beside.h"
#include "weft/common/net.h"
#include "weft/common/read_all.h"

namespace weft::cli {
namespace {

struct ProbeOptions {
  std::string device;
  std::string address;
  std::string known;
  bool json = false;
};

std::vector<std::string> words_of(const ProbeOptions& o) {
  std::vector<std::string> words{"weft probe"};
  if (!o.address.empty()) words.insert(words.end(), {"--address", o.address});
  if (!o.device.empty()) words.push_back(o.device);
  return words;
}

[[noreturn]] void become(const std::string& program, std::vector<std::string> words) {
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  execv(program.c_str(), raw.data());
  fmt::print(stderr, "weft: {}: {}\n", program, std::strerror(errno));
  _exit(kExitFailure);
}

// All that the program prints.
Outcome<std::string> output_of(const std::string& program, const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 1 << 20;
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return failure(std::strerror(errno));
  UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return failure(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    dup2(to.get(), STDOUT_FILENO);
    become(program, words);
  }
  to.reset();
  const auto out = read_all(from.get(), kMost);
  const int error = errno;
  from.reset();  // a program that goes on writing ends
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!out) return failure(fmt::format("weft-probe: {}", std::strerror(error)));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return *out;
  if (WIFEXITED(status)) return failure("weft-probe failed", WEXITSTATUS(status));
  return failure(fmt::format("weft-probe: ended by {}", strsignal(WTERMSIG(status))));
}

Outcome<int> print_json(const std::string& text) {
  const auto profile = like::parse(text);
  if (!profile) return failure("weft-probe is of another version of Weft: " + profile.error());
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [key, value] : profile->lines()) out[key] = value;
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return kExitOk;
}

Outcome<int> print_known(const ProbeOptions& o) {
  const auto known = like::known_devices();
  const auto found =
      std::ranges::find_if(known, [&](const like::Known& one) { return one.name == o.known; });
  if (found == known.end()) {
    std::string names;
    for (const like::Known& one : known) names += fmt::format("\n  {:<6} {}", one.name, one.what);
    return usage_error(fmt::format("--known: '{}' is not built in; these are:{}", o.known, names));
  }
  if (o.json) return print_json(std::string(found->text));
  fmt::print("{}", found->text);
  return kExitOk;
}

Outcome<int> probe(const ProbeOptions& o) {
  if (!o.known.empty()) {
    if (!o.device.empty() || !o.address.empty())
      return usage_error("--known asks no device; leave the device and --address out");
    return print_known(o);
  }
  const auto program =
      find_beside("weft-probe", "rdma-core's headers are (Debian: libibverbs-dev librdmacm-dev)");
  if (!program) return tl::unexpected(program.error());
  if (!o.json) become(*program, words_of(o));
  const auto text = output_of(*program, words_of(o));
  if (!text) return tl::unexpected(text.error());
  return print_json(*text);
}

}  // namespace

void add_probe(Arguments& app) {
  auto options = std::make_shared<ProbeOptions>();
  Arguments* command = app.add_subcommand(
      "probe", "Print what a verbs device promises and refuses, for `weft run --like`");
  command->footer(
      "The device is one of the system's libibverbs. Weft's own: weft run -- weft-probe\n"
      "It makes small objects and connections to itself, and changes nothing.");
  command
      ->add_option("device", options->device,
                   "Its name, as `ibv_devices` has it. Default: the first")
      .type_name("DEVICE");
  command
      ->add_option("--address", options->address,
                   "An address of the device, for connections to itself. Default: the first that "
                   "rdma_cm gives to it")
      .type_name("ADDRESS");
  command
      ->add_option("--known", options->known,
                   "Print the profile of a device that is built in, to change it: siw, rxe, ...")
      .type_name("NAME");
  command->add_flag("--json", options->json, "JSON in place of lines");
  when_chosen(*command, [options] { return probe(*options); });
}

}  // namespace weft::cli
