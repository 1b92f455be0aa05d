#include "exs/rdma/stream_rules.h"

#include <algorithm>
#include <cassert>

#include "exs/core/exs_messages.h"

namespace weft::exs {

StreamSender::Verdict StreamSender::on_advert(std::uint32_t chain, std::uint64_t seq,
                                              std::uint64_t length, bool wait_all) {
  if (length == 0 || adverts_.size() >= kAdvertsMax) return Verdict::kViolation;
  // Chains are numbered upward from 1. A lower number is a new one only after 2^32 chains.
  if (chain != chain_) {
    if (chain != chain_ + 1) return Verdict::kViolation;
    if (alive_) return Verdict::kViolation;  // the receiver cannot know that the old one is dead
    chain_ = chain;
    alive_ = seq == seq_;
  }
  if (!alive_) return Verdict::kStale;
  adverts_.push_back({length, 0, wait_all});
  return Verdict::kAccepted;
}

bool StreamSender::on_close_chain(std::uint32_t chain) {
  if (chain != chain_) return false;
  alive_ = false;
  first_advert_ += adverts_.size();
  adverts_.clear();
  return true;
}

bool StreamSender::on_ring_consumed(std::uint64_t total) {
  if (total < consumed_ || total > ring_sent_) return false;
  consumed_ = total;
  assert(ring_sent_ - consumed_ <= ring_bytes_);
  return true;
}

StreamSender::Step StreamSender::next(std::uint64_t available) const {
  Step step;
  if (available == 0) return step;
  if (!adverts_.empty()) {
    const Advert& head = adverts_.front();
    assert(alive_ && head.filled < head.length);
    step.way = Way::kDirect;
    step.at = head.filled;
    step.length = std::min(available, head.length - head.filled);
    step.advert = first_advert_;
    step.advert_ends = !head.wait_all || head.filled + step.length == head.length;
    return step;
  }
  step.at = ring_sent_ % ring_bytes_;
  // Up to the end of the ring, so that a step is one piece of memory.
  step.length = std::min({available, ring_free(), ring_bytes_ - step.at});
  if (step.length != 0) step.way = Way::kRing;
  return step;
}

void StreamSender::took(const Step& step) {
  assert(step.way != Way::kWait && step.length != 0);
  seq_ += step.length;
  if (step.way == Way::kDirect) {
    assert(!adverts_.empty());
    assert(step.advert == first_advert_ && step.at == adverts_.front().filled);
    adverts_.front().filled += step.length;
    if (step.advert_ends) {
      adverts_.pop_front();
      ++first_advert_;
    }
    return;
  }
  assert(adverts_.empty() && step.length <= ring_free());
  if (alive_) ++switches_;
  alive_ = false;
  ring_sent_ += step.length;
}

void StreamSender::describe(std::vector<std::uint64_t>& out) const {
  out.insert(out.end(), {seq_, ring_sent_, consumed_, chain_, alive_ ? 1U : 0U, adverts_.size()});
  for (const Advert& one : adverts_) {
    out.insert(out.end(), {one.length, one.filled, one.wait_all ? 1U : 0U});
  }
}

StreamReceiver::Advert StreamReceiver::advertise(std::uint64_t length, bool wait_all) {
  assert(may_advertise() && length != 0 && adverts_.size() < kAdvertsMax);
  if (!in_chain_) {
    ++chain_;
    in_chain_ = true;
    direct_in_chain_ = false;
    chain_seq_ = seq_;
  }
  adverts_.push_back({length, 0, wait_all});
  return {chain_, chain_seq_};
}

StreamReceiver::Placed StreamReceiver::on_direct(std::uint64_t seq, std::uint64_t length) {
  Placed placed;
  if (adverts_.empty() || seq != seq_ || length == 0) return placed;
  Open& head = adverts_.front();
  if (length > head.length - head.filled) return placed;
  head.filled += length;
  seq_ += length;
  direct_in_chain_ = true;
  placed.ok = true;
  placed.length = length;
  placed.ends = !head.wait_all || head.filled == head.length;
  assert(ring_used() == 0 && head.filled <= head.length);
  if (placed.ends) adverts_.pop_front();
  return placed;
}

bool StreamReceiver::on_ring(std::uint64_t seq, std::uint64_t length) {
  if (seq != seq_ || length == 0 || length > ring_bytes_ - ring_used()) return false;
  if (length > ring_bytes_ - ring_tail()) return false;
  adverts_.clear();
  in_chain_ = false;
  seq_ += length;
  received_ += length;
  assert(ring_used() <= ring_bytes_);
  return true;
}

std::uint32_t StreamReceiver::close_chain() {
  assert(!adverts_.empty() && in_chain_ && !closing_);
  closing_ = true;
  return chain_;
}

bool StreamReceiver::on_chain_closed(std::uint32_t chain) {
  if (!closing_ || chain != chain_) return false;
  closing_ = false;
  adverts_.clear();
  in_chain_ = false;
  return true;
}

void StreamReceiver::describe(std::vector<std::uint64_t>& out) const {
  out.insert(out.end(), {seq_, received_, consumed_, chain_, chain_seq_, in_chain_ ? 1U : 0U,
                         closing_ ? 1U : 0U, direct_in_chain_ ? 1U : 0U, adverts_.size()});
  for (const Open& one : adverts_) {
    out.insert(out.end(), {one.length, one.filled, one.wait_all ? 1U : 0U});
  }
}

}  // namespace weft::exs
