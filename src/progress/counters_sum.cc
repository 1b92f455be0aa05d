#include "progress/counters_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace weft::progress {

namespace {

// All of them, without their names: the public header is where they are listed.
using All = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;

}  // namespace

void add(Counters& sum, const Counters& more) {
  auto all = std::bit_cast<All>(sum);
  std::ranges::transform(all, std::bit_cast<All>(more), all.begin(), std::plus<>{});
  sum = std::bit_cast<Counters>(all);
}

// Each of them by its name, because the two lists differ.
static_assert(sizeof(proto::StreamCounters) == (9 + 2 * 16) * sizeof(proto::Counter),
              "add() must name the new counter of a stream");

void add(Counters& sum, const proto::StreamCounters& more) {
  sum.tx_bytes += more.tx_bytes.get();
  sum.rx_bytes += more.rx_bytes.get();
  sum.tx_fpdus += more.tx_fpdus.get();
  sum.rx_fpdus += more.rx_fpdus.get();
  for (std::size_t i = 0; i < more.tx_messages.size(); ++i) {
    sum.tx_messages[i] += more.tx_messages[i].get();
    sum.rx_messages[i] += more.rx_messages[i].get();
  }
  sum.crc_errors += more.crc_errors.get();
  sum.terminates_sent += more.terminates_sent.get();
  sum.terminates_received += more.terminates_received.get();
  sum.small_segments += more.small_segments.get();
  sum.messages_dropped += more.messages_dropped.get();
}

}  // namespace weft::progress
