// The rule about keys that are used for something else: W22.
#include <string>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {

void Rules::check_lkeys(const std::vector<Octets>& octets, const Object& queue, Here here) {
  for (const Octets& one : octets) {
    if (one.by_lkey || !keys_.lives(one.lkey)) continue;
    Finding finding{"W22", std::string(here.call),
                    "an SGE has the rkey " + hex(one.lkey) + " in place of an lkey", here.at,
                    keys_.about(one.lkey)};
    finding.notes.push_back(made_note(queue));
    return report_(finding);
  }
}

// The number may be an rkey all the same: of this process, or of the peer, for whom it was used
// before an lkey became the same.
bool Rules::is_lkey_for_rkey(const Posted& request, std::uint32_t key) {
  if (!request.has_remote) return false;
  if (request.rkey_is_lkey && keys_.lives(key) && !keys_.lives(request.rkey))
    return !rkeys_.contains(request.rkey);
  if (rkeys_.size() >= Keys::kDead) rkeys_.clear();
  rkeys_.insert(request.rkey);
  return false;
}

void Rules::check_keys(const Posted& request, const Object& qp, Here here) {
  check_lkeys(request.sources, qp, here);
  check_lkeys(request.sinks, qp, here);
  const auto report = [&](std::string text, std::uint32_t key) {
    Finding finding{"W22", std::string(here.call), std::string(request.opcode) + std::move(text),
                    here.at, keys_.about(key)};
    finding.notes.push_back(made_note(qp));
    report_(finding);
  };
  if (const std::uint32_t key = request.rkey ^ kLkeyMark; is_lkey_for_rkey(request, key))
    report(" has the lkey " + hex(request.rkey) + " in place of an rkey", key);
  constexpr unsigned kRemoteWrite = 2;  // IBV_ACCESS_REMOTE_WRITE
  if (!request.sinks_need_remote) return;
  for (const Octets& sink : request.sinks) {
    if (keys_.lacks(sink.lkey, kRemoteWrite))
      return report(" to memory without IBV_ACCESS_REMOTE_WRITE", sink.lkey);
  }
}

}  // namespace weft::check
