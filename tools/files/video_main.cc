// weft-video: films over RDMA. `weft video` starts this program. docs/video.md
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "files/client/local.h"
#include "files/data_places.h"
#include "files/data_serving.h"
#include "files/protocol/cpu_time.h"
#include "files/protocol/outcome.h"
#include "files/protocol/token_proof.h"
#include "files/video/show.h"
#include "files/video_convert.h"
#include "files/video_make.h"
#include "files/video_options.h"
#include "weft/common/message.h"

#include <fcntl.h>

namespace weft::tv {
namespace {

// A server that says nothing for so long, when a film begins, is given up.
constexpr int kPatienceMs = 30000;

using files::Failed;
using video::PlayStats;

volatile std::sig_atomic_t g_interrupted = 0;  // the signal

int fail(const Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }
int usage(std::string text) { return cli::report_failure({std::move(text), cli::kExitUsage}); }

// ---- make

int make(const MakeCommand& c) {
  const auto name = make_film_file(c);
  if (!name) return cli::report_failure(name.error());
  std::puts(name->c_str());
  return 0;
}

// ---- serve

int serve(Command& c) {
  if (auto ok = data::apply(c.listen, c.serve); !ok) return cli::report_failure(ok.error());
  Converted converted;
  if (auto ok = converted.convert(c.serve.files); !ok) return fail(ok.error());
  return data::serve(c.serve, c.announce_fd);
}

// ---- show

double per_second(const PlayStats& s) {
  const double seconds = std::chrono::duration<double>(s.last_shown - s.first_shown).count();
  return seconds > 0 ? static_cast<double>(s.shown - 1) / seconds : 0;
}
double ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }
double mean_ms(std::int64_t ns, std::uint64_t count) {
  return count != 0 ? ms(ns) / static_cast<double>(count) : 0;
}

nlohmann::json describe(const video::Player& player) {
  const PlayStats& s = player.stats();
  const std::uint64_t fetched = s.bytes / player.film().record_bytes();
  return {{"film", player.path()},
          {"width", player.film().width},
          {"height", player.film().height},
          {"frames", player.records()},
          {"shown", s.shown},
          {"late", s.late},
          {"dropped", s.dropped},
          {"frames_per_second", per_second(s)},
          {"bytes", s.bytes},
          {"requests", s.requests},
          {"fetch_ms", mean_ms(s.fetch_ns, fetched)},
          {"fetch_max_ms", ms(s.fetch_max_ns)},
          {"flip_ms", mean_ms(s.flip_ns, s.shown)},
          {"flip_max_ms", ms(s.flip_max_ns)},
          {"server_cpu_s", static_cast<double>(s.server_cpu_us) / 1e6}};
}

void report(const video::Show& show, bool as_json) {
  nlohmann::json films = nlohmann::json::array();
  for (const auto& player : show.players) films.push_back(describe(*player));
  if (as_json) {
    const nlohmann::json all = {
        {"films", films}, {"cpu_s", files::cpu_seconds()}, {"moves", show.screen->moves()}};
    std::puts(all.dump(2).c_str());
    return;
  }
  for (const auto& f : films) {
    std::fprintf(stderr, "%s: %llu frames shown, %.1f a second, %llu late, %llu dropped\n",
                 f["film"].get<std::string>().c_str(),
                 static_cast<unsigned long long>(f["shown"].get<std::uint64_t>()),
                 f["frames_per_second"].get<double>(),
                 static_cast<unsigned long long>(f["late"].get<std::uint64_t>()),
                 static_cast<unsigned long long>(f["dropped"].get<std::uint64_t>()));
  }
}

files::Outcome<std::unique_ptr<video::Screen>> open_screen(const ShowCommand& c,
                                                           const std::vector<video::Film>& films) {
  return c.is_headless ? video::open_headless(films, c.headless)
                       : video::open_window(films, c.window);
}

// A film that goes round for ever has no end to be missed.
bool all_was_shown(const ShowCommand& c, const video::Show& show) {
  if (c.play.loop && c.play.frames == 0) return true;
  return std::ranges::all_of(show.players, [](const auto& player) { return player->finished(); });
}

int play(const ShowCommand& c, video::Show& show) {
  std::vector<video::Film> films;
  for (const auto& player : show.players) films.push_back(player->film());
  auto screen = open_screen(c, films);
  if (!screen) return fail(screen.error());
  show.screen = std::move(*screen);
  show.hold = c.hold;
  show.failed = [](const Failed& why) { fail(why); };
  show.interrupted = [] { return g_interrupted != 0; };
  struct sigaction action {};
  action.sa_handler = [](int which) { g_interrupted = which; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const auto lost = video::run(show);
  report(show, c.json);
  if (!lost) return fail(lost.error());
  if (*lost != 0) return 1;
  return g_interrupted != 0 && !all_was_shown(c, show) ? 128 + g_interrupted : 0;
}

int show(Command& c) {
  ShowCommand& s = c.show;
  if (!s.is_headless && (s.headless.check || !s.headless.dump_prefix.empty())) {
    return usage("--check and --dump: need --headless");
  }
  s.play.paced = !s.fast;
  video::Show all;
  bool cut = false;
  for (const std::string& name : s.films) {
    const auto remote = data::remote_path(name, c.port, "is no film of a server; write HOST:FILE");
    if (!remote) return cli::report_failure(remote.error());
    auto player = video::Player::open({remote->host, remote->port, c.serve.token, kPatienceMs},
                                      remote->path, s.play);
    if (!player) return fail(player.error());
    if ((*player)->rest() != 0) {
      cut = true;
      cli::say((*player)->path() + ": the file ends within a frame: octets left over: " +
               std::to_string((*player)->rest()));
    }
    all.players.push_back(std::move(*player));
  }
  const int code = play(s, all);
  return code == 0 && cut && s.headless.check ? cli::kExitFailure : code;
}

int run(Command& c) {
  std::signal(SIGPIPE, SIG_IGN);
  if (!c.token_file.empty()) {
    auto token = files::read_token(c.token_file);
    if (!token) return fail(token.error());
    c.serve.token = *token;
  }
  switch (c.kind) {
    case Command::Kind::kServe: return serve(c);
    case Command::Kind::kShow: return show(c);
    case Command::Kind::kMake: return make(c.make);
    case Command::Kind::kNone: break;
  }
  return 2;
}

}  // namespace
}  // namespace weft::tv

int main(int argc, char** argv) {
  weft::tv::Command command;
  int exit_code = 0;
  if (weft::tv::parse(argc, argv, command, exit_code)) exit_code = weft::tv::run(command);
  return weft::cli::after_output(exit_code);
}
