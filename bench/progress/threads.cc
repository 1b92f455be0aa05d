// Two threads of one process, each with a completion queue of its own.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "node.h"
#include "pingpong.h"
#include "workloads.h"

namespace progress {

namespace {

constexpr unsigned kBatch = 32;
constexpr unsigned kReceives = 160;  // more than a depth

// A connection of a thread to itself.
struct Own {
  std::unique_ptr<Queue> queue;
  Node::Loop loop = {};
  Histogram histogram = {};  // round trips
  std::uint64_t messages = 0;
};

// One way and back, polled; both ends are this thread's.
void turn_around(const Run& run, unsigned thread, Own& own) {
  for (auto [from, to] : {std::pair(own.loop.active, own.loop.passive),
                          std::pair(own.loop.passive, own.loop.active)}) {
    run.tally(thread).awaited.store(++from->sent, std::memory_order_relaxed);
    from->send(from->sent);
    await_message(*own.queue, *to);
  }
}

// Keeps `depth` Sends out, one way.
void stream(const Run& run, unsigned thread, Own& own, unsigned depth, double seconds) {
  const Active active(run.tally(thread));
  auto [from, to] = own.loop;
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  ibv_wc wcs[kBatch];
  bool over = false;
  while (!over || to->received != from->sent) {
    over = over || now_ns() >= end_ns;
    while (!over && from->sent - to->received < depth) {
      ++from->sent;
      from->send(from->sent);
    }
    run.tally(thread).awaited.store(to->received + 1, std::memory_order_relaxed);
    const unsigned count = own.queue->poll(wcs, kBatch);
    for (unsigned i = 0; i < count; ++i) {
      if (Link::is_receive(wcs[i])) to->receive(wcs[i]);
    }
    if (count != 0) run.tally(thread).messages.fetch_add(count, std::memory_order_relaxed);
  }
}

void work(const Run& run, unsigned thread, Own& own, unsigned depth, double seconds) {
  if (depth == 1) {
    ping(own.histogram, seconds, run.tally(thread), [&](bool) { turn_around(run, thread, own); });
    own.messages = own.histogram.count() * 2;
    return;
  }
  const std::uint64_t before = own.loop.passive->received;
  stream(run, thread, own, depth, seconds);
  own.messages = own.loop.passive->received - before;
}

// Messages in a second, of all threads that run at once.
double measure_threads(const Run& run, std::vector<Own>& owns, unsigned count, unsigned depth,
                       const char* prefix) {
  std::atomic<unsigned> ready = 0;
  std::vector<std::thread> threads;
  Meter meter(run);
  for (unsigned i = 0; i < count; ++i) {
    owns[i].histogram = {};
    threads.emplace_back([&, i] {
      pin_to_cpu(run, i);
      ready.fetch_add(1);
      while (ready.load() != count) std::this_thread::yield();
      work(run, i + 1, owns[i], depth, run.options.seconds);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t messages = 0;
  for (unsigned i = 0; i < count; ++i) messages += owns[i].messages;
  meter.stop(messages, prefix);
  Histogram all;
  for (unsigned i = 0; i < count; ++i) all.add(owns[i].histogram);
  if (depth == 1) all.report(run, prefix, 2);
  return static_cast<double>(messages) / meter.seconds();
}

}  // namespace

void threads_client(const Run& run, unsigned depth) {
  use_all_cpus();  // for the threads of the library too
  Node node(run, 4, kReceives);
  std::vector<Own> owns(2);
  for (Own& own : owns) {
    own.queue = std::make_unique<Queue>(node, Wait::kPoll);
    own.loop = node.loop(*own.queue);
    work(run, 1, own, depth, run.options.seconds / 20);
  }
  const double one = measure_threads(run, owns, 1, depth, "one_");
  const double two = measure_threads(run, owns, 2, depth, "two_");
  run.report("one_per_s", one);
  run.report("two_per_s", two);
  run.report("scaling", two / one);
  node.finish();
}

void threads_server(const Run& run, unsigned /*depth*/) { run.barrier(); }

// A poller beside a sleeper ------------------------------------------------------------------

void beside_client(const Run& run, unsigned beside) {
  use_all_cpus();
  Node node(run, 3, kReceives);
  ibv_comp_channel* channel = ibv_create_comp_channel(node.context());
  if (channel == nullptr) die("cannot create a completion channel");
  auto sleeping = std::make_unique<Queue>(node, Wait::kNotify, channel);
  Own own;
  own.queue = std::make_unique<Queue>(node, Wait::kPoll, beside == kOneChannel ? channel : nullptr);
  Link& link = node.connect(*sleeping);
  own.loop = node.loop(*own.queue);
  run.barrier();

  std::atomic<bool> over = false;
  std::thread poller;
  if (beside != kAlone) {
    poller = std::thread([&] {
      pin_to_cpu(run, 0);
      while (!over.load())
        ping(own.histogram, 0.01, run.tally(1), [&](bool) { turn_around(run, 1, own); });
    });
  }
  Histogram histogram;
  std::thread([&] {
    pin_to_cpu(run, 1);
    const auto round = [&](bool last) { ping_by_send(run, 2, *sleeping, link, last); };
    Histogram warmup;
    ping(warmup, run.options.seconds / 10, run.tally(2), round);
    ping(histogram, run.options.seconds, run.tally(2), round);
    round(true);
  }).join();
  over = true;
  if (poller.joinable()) poller.join();
  histogram.report(run, "sleeper_", 2);
  if (beside != kAlone) own.histogram.report(run, "poller_", 2);
  node.finish();
  sleeping.reset();
  own.queue.reset();
  ibv_destroy_comp_channel(channel);
}

void beside_server(const Run& run, unsigned /*beside*/) {
  send_latency_server(run, static_cast<unsigned>(Wait::kNotify));
}

}  // namespace progress
