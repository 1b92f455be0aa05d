#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "weft/selftest/selftest_run.h"

namespace weft::selftest {
namespace {

using Json = nlohmann::ordered_json;

const char* word(Grade grade) {
  switch (grade) {
    case Grade::kRight: return "right";
    case Grade::kNoted: return "noted";
    case Grade::kWrong: return "WRONG";
    default: return "skip";
  }
}

std::string result(Grade grade) { return grade == Grade::kWrong ? "wrong" : word(grade); }

std::array<std::size_t, 4> counts(const std::vector<Outcome>& outcomes) {
  std::array<std::size_t, 4> out{};
  for (const Outcome& o : outcomes) ++out[static_cast<std::size_t>(o.verdict.grade)];
  return out;
}

std::string start_up(const Context& context) {
  const Profile& p = context.profile;
  if (!p.enhanced) return fmt::format("MPA revision {}", p.revision);
  return fmt::format("MPA revision {}, enhanced{}", p.revision,
                     context.agrees_to_rtr ? ", peer-to-peer" : "");
}

}  // namespace

std::string headline(const Context& context) {
  return fmt::format("weft selftest {}: {}{}; {}; {}", context.address.text(), start_up(context),
                     context.by_ring ? ", then a ring" : "",
                     context.served ? "weft selftest --serve" : "another application",
                     context.many ? "several connections at once" : "one connection at a time");
}

std::string line(const Outcome& o) {
  const std::string what = fmt::format("{:5}  {:28} {:11} {}", word(o.verdict.grade), o.check->id,
                                       o.check->rfc, o.check->title);
  const bool quiet = o.verdict.grade == Grade::kRight || o.verdict.detail.empty();
  return quiet ? what : fmt::format("{}\n       -> {}", what, o.verdict.detail);
}

std::string summary(const std::vector<Outcome>& outcomes) {
  const auto n = counts(outcomes);
  return fmt::format("{} checks: {} right, {} noted, {} wrong, {} skipped", outcomes.size(), n[0],
                     n[1], n[2], n[3]);
}

std::string json(const Context& context, const std::vector<Outcome>& outcomes) {
  Json checks = Json::array();
  for (const Outcome& o : outcomes) {
    checks.push_back({{"id", o.check->id},
                      {"rfc", o.check->rfc},
                      {"title", o.check->title},
                      {"optional", o.check->optional},
                      {"result", result(o.verdict.grade)},
                      {"detail", o.verdict.detail},
                      {"seconds", o.seconds}});
  }
  const auto n = counts(outcomes);
  const Profile& p = context.profile;
  const Json all = {
      {"peer", context.address.text()},
      {"application", context.served ? "weft selftest --serve" : "unknown"},
      {"mpa_revision", p.revision},
      {"enhanced", p.enhanced},
      {"peer_to_peer", context.agrees_to_rtr},
      {"several_connections", context.many},
      {"path", context.by_ring ? "ring" : "tcp"},
      {"checks", checks},
      {"summary", {{"right", n[0]}, {"noted", n[1]}, {"wrong", n[2]}, {"skipped", n[3]}}}};
  return all.dump(2);
}

}  // namespace weft::selftest
