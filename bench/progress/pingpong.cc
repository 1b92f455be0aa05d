// One connection, one message in flight: Writes awaited in memory, Sends with each way of waiting.
#include "pingpong.h"

#include "node.h"
#include "workloads.h"

namespace progress {

std::uint64_t await_message(Queue& queue, Link& link) {
  ibv_wc wcs[8];
  std::uint64_t value = 0;
  while (value == 0) {
    const unsigned count = queue.take(wcs, 8);
    for (unsigned i = 0; i < count; ++i) {
      if (Link::is_receive(wcs[i])) value = link.receive(wcs[i]);
    }
  }
  return value;
}

namespace {

void await_completion(Queue& queue) {
  ibv_wc wc;
  while (queue.poll(&wc, 1) == 0) {
  }
}

}  // namespace

void ping(Histogram& histogram, double seconds, Tally& tally,
          const std::function<void(bool last)>& round) {
  const Active active(tally);
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::int64_t at_ns = now_ns();
  while (at_ns < end_ns) {
    round(false);
    const std::int64_t done_ns = now_ns();
    histogram.add(done_ns - at_ns);
    at_ns = done_ns;
    tally.messages.store(tally.messages.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  }
}

void measure_ping(const Run& run, const std::function<void(bool last)>& round) {
  Histogram warmup;
  ping(warmup, run.options.seconds / 10, run.tally(), round);
  Histogram histogram;
  Meter meter(run);
  ping(histogram, run.options.seconds, run.tally(), round);
  meter.stop(histogram.count() * 2);
  round(true);
  histogram.report(run, "", 2);
}

// Writes -------------------------------------------------------------------------------------

namespace {

constexpr unsigned kSignalInterval = 32;

// With one post a hop: as ib_write_lat, signaled, and polled until the completion is there. With
// two: the message, then the bell, and no look at the queue but once in 32 hops.
void post_writes(Queue& queue, Link& link, unsigned posts, std::uint64_t value) {
  if (posts == 1) {
    link.write_bell(value);
    await_completion(queue);
    return;
  }
  const bool signaled = (value & ~kLast) % kSignalInterval == 0;
  link.write_message(value, false);
  link.write_bell(value, signaled);
  if (signaled) await_completion(queue);
}

// The peer's answer to the number.
std::uint64_t await_writes(const Link& link, unsigned posts, std::uint64_t number) {
  const std::uint64_t value = link.await_bell(number);
  if (posts == 1) return value;
  for (const unsigned word : {0U, kMessageWords - 1}) {
    if (link.message_word(word) != value) {
      die("a Write was seen before the one that was posted before it, number %llu",
          static_cast<unsigned long long>(number));
    }
  }
  return value;
}

}  // namespace

void write_latency_client(const Run& run, unsigned posts) {
  Node node(run, 1);
  Queue queue(node, Wait::kPoll);
  Link& link = node.connect(queue);
  run.barrier();
  measure_ping(run, [&](bool last) {
    const std::uint64_t number = ++link.sent;
    run.tally().awaited.store(number, std::memory_order_relaxed);
    post_writes(queue, link, posts, last ? number | kLast : number);
    await_writes(link, posts, number);
  });
  node.finish();
}

void write_latency_server(const Run& run, unsigned posts) {
  Node node(run, 1);
  Queue queue(node, Wait::kPoll);
  Link& link = node.accept(queue);
  run.barrier();
  const Active active(run.tally());
  std::uint64_t value = 0;
  while ((value & kLast) == 0) {
    run.tally().awaited.store(++link.sent, std::memory_order_relaxed);
    value = await_writes(link, posts, link.sent);
    post_writes(queue, link, posts, value);
  }
  node.finish();
}

// Sends --------------------------------------------------------------------------------------

void ping_by_send(const Run& run, unsigned thread, Queue& queue, Link& link, bool last) {
  const std::uint64_t number = ++link.sent;
  run.tally(thread).awaited.store(number, std::memory_order_relaxed);
  link.send(last ? number | kLast : number);
  await_message(queue, link);
}

void answer_sends(const Run& run, unsigned thread, Queue& queue, Link& link) {
  const Active active(run.tally(thread));
  std::uint64_t value = 0;
  while ((value & kLast) == 0) {
    run.tally(thread).awaited.store(link.received + 1, std::memory_order_relaxed);
    value = await_message(queue, link);
    link.send(value);
  }
}

void send_latency_client(const Run& run, unsigned wait) {
  Node node(run, 1);
  Queue queue(node, static_cast<Wait>(wait));
  Link& link = node.connect(queue);
  run.barrier();
  measure_ping(run, [&](bool last) { ping_by_send(run, 0, queue, link, last); });
  node.finish();
}

void send_latency_server(const Run& run, unsigned wait) {
  Node node(run, 1);
  Queue queue(node, static_cast<Wait>(wait));
  Link& link = node.accept(queue);
  run.barrier();
  answer_sends(run, 0, queue, link);
  node.finish();
}

}  // namespace progress
