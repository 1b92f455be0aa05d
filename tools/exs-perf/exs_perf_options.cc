#include "exs-perf/exs_perf_options.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "exs-perf/uring.h"
#include "weft/common/arguments.h"
#include "weft/common/message.h"
#include "weft/common/where.h"

namespace exs_perf {
namespace {

using weft::cli::named;
using weft::cli::Outcome;
using weft::cli::usage_error;

constexpr const char* kDefaultPort = "7475";
constexpr std::uint32_t kLargestMessage = 1U << 30U;

struct Texts {
  std::string listen;
  std::string peer;
  std::string modes;
  std::string sizes;
  std::string wait = "busy";
};

// "a,b" -> {"a", "b"}. An empty text has no items.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');) items.push_back(item);
  return items;
}

void add_options(weft::cli::Arguments& app, Options& o, Texts& texts) {
  app.add_option("PEER", texts.peer, "Client: the server (default port 7475)")
      .type_name("HOST[:PORT]");
  app.add_flag("--self", o.self, "Both ends: the server is a second process on this machine");
  app.add_option("--listen", texts.listen,
                 "Server: serve clients one after another; port 0: a free one, which is printed")
      .type_name("[ADDRESS:]PORT");
  app.add_flag("--once", o.once, "Server: end after one client");
  app.add_option(
         "--mode", texts.modes,
         "A list: normal, immediate, persistent, stream, tcp, packet-tcp; and uring, plain TCP by "
         "io_uring. Default: all")
      .type_name("LIST");
  app.add_option("--size", texts.sizes, "Bytes per message, a list. Default: 64,4096,65536,1048576")
      .type_name("LIST");
  app.add_option("--depth", o.depth, "Operations outstanding")
      .type_name("N")
      .between(1, 1024)
      .show_default();
  app.add_option("--buffers", o.buffers,
                 "Messages share this many buffers. Default: as many as 64 KiB hold, at least 1")
      .type_name("N")
      .between(1, 1024);
  app.add_option("--seconds", o.seconds, "Length of each measurement, in seconds")
      .type_name("N")
      .show_default();
  app.add_option("--rounds", o.rounds, "Rounds, of which the median counts")
      .type_name("N")
      .between(1, 1000)
      .show_default();
  app.add_option("--wait", texts.wait, "How to wait for events: busy, adaptive or notify")
      .type_name("HOW")
      .show_default();
  app.add_flag("!--no-pin", o.pin, "With --self: do not give each end a CPU of its own");
  app.add_flag("--json", o.json, "Results as JSON on stdout");
  app.footer(
      "latency_us is the median of half a round trip, in persistent mode of one receive. "
      "cpu_s_per_gb is the CPU "
      "time of both ends; less is better. direct is the percentage of the bytes that were placed "
      "without a copy; more is better.");
}

void add_phases(weft::cli::Arguments& app, bool& latency, bool& bandwidth) {
  app.add_flag("--latency", latency, "Latency only");
  app.add_flag("--bandwidth", bandwidth, "Bandwidth only");
}

weft::cli::Failure unknown(const char* option, const std::string& text, const std::string& legal) {
  const std::string suggestion = weft::cli::did_you_mean(text, legal);
  return {fmt::format("{}: '{}' is unknown; it can be {}{}{}", option, text, legal,
                      suggestion.empty() ? "" : "; ", suggestion),
          weft::cli::kExitUsage};
}

Outcome<std::vector<Mode>> modes_of(const std::string& names) {
  std::vector<Mode> modes;
  for (const std::string& name : split(names)) {
    const auto mode = mode_of(name);
    if (!mode) {
      return tl::unexpected(unknown(
          "--mode", name, "normal, immediate, persistent, stream, tcp, packet-tcp or uring"));
    }
    if (*mode == Mode::kUring && !uring_missing().empty()) {
      return usage_error("--mode: uring: " + uring_missing());
    }
    modes.push_back(*mode);
  }
  return modes.empty() ? all_modes() : modes;
}

Outcome<std::vector<std::uint32_t>> sizes_of(const std::string& texts) {
  std::vector<std::uint32_t> sizes;
  for (const std::string& text : split(texts)) {
    std::uint32_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc{} || end != text.data() + text.size() || size < 1 ||
        size > kLargestMessage) {
      return usage_error(
          fmt::format("--size: '{}' is not a whole number from 1 to {}", text, kLargestMessage));
    }
    sizes.push_back(size);
  }
  if (sizes.empty()) sizes = {64, 4096, 65536, 1U << 20U};
  return sizes;
}

Outcome<int> wait_of(const std::string& how) {
  if (how == "busy") return EXS_WAIT_BUSY_POLL;
  if (how == "adaptive") return EXS_WAIT_ADAPTIVE;
  if (how == "notify") return EXS_WAIT_NOTIFY;
  return tl::unexpected(unknown("--wait", how, "busy, adaptive or notify"));
}

Outcome<void> take_role(Options& o, const Texts& texts) {
  o.listen = !texts.listen.empty();
  if (int{o.self} + int{o.listen} + int{!texts.peer.empty()} != 1) {
    return usage_error("say what to do: --self, HOST[:PORT], or --listen PORT for the other side");
  }
  if (o.self) return {};
  const auto where = o.listen ? weft::cli::parse_listen_place(texts.listen)
                              : weft::cli::parse_host_port(texts.peer);
  if (!where) return o.listen ? named("--listen", where.error()) : tl::unexpected(where.error());
  if (!where->hint.empty()) weft::cli::say(where->hint);
  o.host = where->host;
  o.port = where->port ? std::to_string(*where->port) : kDefaultPort;
  return {};
}

Outcome<void> take_values(Options& o, const Texts& texts) {
  const auto modes = modes_of(texts.modes);
  if (!modes) return tl::unexpected(modes.error());
  const auto sizes = sizes_of(texts.sizes);
  if (!sizes) return tl::unexpected(sizes.error());
  if (!(o.seconds > 0 && o.seconds <= 3600)) {
    return usage_error("--seconds: takes more than 0, and at most 3600");
  }
  const auto wait = wait_of(texts.wait);
  if (!wait) return tl::unexpected(wait.error());
  o.modes = *modes;
  o.sizes = *sizes;
  o.wait = *wait;
  return take_role(o, texts);
}

}  // namespace

std::optional<Options> parse(int argc, char** argv, int& exit_code) {
  weft::cli::Arguments app{"Measure extended sockets: bandwidth, latency and CPU time", "exs-perf"};
  Options o;
  Texts texts;
  bool latency = false;
  bool bandwidth = false;
  add_options(app, o, texts);
  add_phases(app, latency, bandwidth);
  if (const auto end = app.parse(argc, argv)) {
    exit_code = *end;
    return std::nullopt;
  }
  if (latency != bandwidth) {
    o.latency = latency;
    o.bandwidth = bandwidth;
  }
  if (const auto taken = take_values(o, texts); !taken) {
    exit_code = weft::cli::report_failure(taken.error());
    return std::nullopt;
  }
  return o;
}

}  // namespace exs_perf
