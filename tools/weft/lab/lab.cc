// `weft lab`: hosts on one machine, with links like those between machines.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "lab/commands.h"
#include "weft/common/arguments.h"
#include "weft/lab/lab_message.h"
#include "weft/lab/namespaces.h"
#include "weft/lab/supervisor.h"

namespace weft::cli {
namespace {

// None of 0 to 2 is closed: what is opened later is no stream.
void fill_streams() {
  int fd = 0;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) continue;
  if (fd >= 0) close(fd);
}

Outcome<UniqueFd> connect_to_lab() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  const std::string path = lab_file("socket");
  std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
  if (fd && connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0)
    return fd;
  return failure(
      fmt::format("no lab runs here ({}: {}); `weft lab exec` is for programs that "
                  "`weft lab run` has started",
                  path, std::strerror(errno)));
}

// As ssh does it: the words are joined, and a shell on the other host reads them.
Outcome<int> exec_on(const std::string& host, const std::vector<std::string>& words) {
  fill_streams();
  LabExec exec{host, "", std::filesystem::current_path().string(), {}};
  for (const std::string& word : words) exec.command += (exec.command.empty() ? "" : " ") + word;
  for (char** variable = environ; *variable != nullptr; ++variable)
    exec.environment.emplace_back(*variable);
  const Outcome<UniqueFd> lab = connect_to_lab();
  if (!lab) return tl::unexpected(lab.error());
  LabMessage order;
  order.kind = LabMessage::Kind::kExec;
  order.text = as_text(exec);
  for (int stream = 0; stream <= 2; ++stream) order.fds.emplace_back(dup(stream));
  if (!send_message(lab->get(), order, SendWait::kYes))
    return failure(fmt::format("{}: {}", host, std::strerror(errno)));
  order.fds.clear();
  LabMessage told;
  if (!receive_message(lab->get(), told)) return failure(fmt::format("{} has gone", host));
  if (told.kind != LabMessage::Kind::kEnded) return usage_error(told.text);
  return told.value;
}

void add_lab_run(Arguments& command) {
  auto options = std::make_shared<LabOptions>();
  command.add_option("--hosts", options->hosts, "How many hosts there are: h1, h2, ...")
      .type_name("N")
      .between(1, lab::kMostHosts)
      .show_default();
  command
      .add_option("--link", options->link,
                  "What lies between them: rate=1Gbit,delay=5ms,queue=1MB, each as wanted; the "
                  "delay is one way. Default: as fast as it goes")
      .type_name("LINK");
  command
      .add_option("--until", options->until,
                  "The lab ends with the command on this host. Default: with the last one, or with "
                  "the first that fails")
      .type_name("HOST");
  command.add_flag("--plain", options->plain,
                   "Run the commands as they are, without Weft's libraries");
  command.add_flag("--loopback", options->loopback,
                   "Where hosts cannot be made: run the commands on this machine, with 127.0.0.1, "
                   "127.0.0.2, ... for hosts, and no links");
  add_program_options(command, options->program);
  command.footer(
      "One command runs on every host; a launcher such as mpirun on h1 alone, and reaches the "
      "others.\nSeveral, with --- between, run on a host each. In words, {host}, {rank}, "
      "{address} and {hosts}\nare replaced; the word {server} is nothing on h1, and h1 on others:\n"
      "  weft lab run --hosts 2 --link rate=1Gbit,delay=5ms -- ib_write_bw -R {server}\n"
      "Exit codes: that of the first command that failed, 0 if none did, 2 wrong usage.");
  when_chosen(command, [options] {
    fill_streams();
    return run_lab(*options);
  });
}

void add_lab_exec(Arguments& command) {
  command.take_all();
  when_chosen(command, [&command]() -> Outcome<int> {
    std::vector<std::string> words = command.remaining();
    while (!words.empty() && words.front().starts_with("-")) words.erase(words.begin());
    if (words.size() < 2) return usage_error("write `weft lab exec HOST COMMAND...`");
    return exec_on(words.front(), {words.begin() + 1, words.end()});
  });
}

}  // namespace

void add_lab(Arguments& app) {
  Arguments* command =
      app.add_subcommand("lab", "Run programs on several hosts that are made for them");
  command->require_subcommand(1, 1);
  add_lab_run(
      *command->add_subcommand("run", "Make hosts, run commands there, and leave nothing behind"));
  add_lab_exec(*command->add_subcommand(
      "exec", "From a program of a lab: run a command on another host, as ssh does"));
}

}  // namespace weft::cli
