// Many connections: readers that sleep, and up to a thousand on one completion queue.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "node.h"
#include "pingpong.h"
#include "workloads.h"

namespace progress {

// Sleeping readers ---------------------------------------------------------------------------

void readers_client(const Run& run, unsigned readers) {
  Node node(run, readers);
  Queue queue(node, Wait::kPoll);
  for (unsigned i = 0; i < readers; ++i) node.connect(queue);
  run.barrier();
  unsigned next = 0;
  const auto round = [&](bool last) {
    ping_by_send(run, 0, queue, node.link(next), last);
    if (++next == readers) next = 0;
  };
  Histogram warmup;
  ping(warmup, run.options.seconds / 10, run.tally(), round);
  Histogram histogram;
  Meter meter(run);
  ping(histogram, run.options.seconds, run.tally(), round);
  meter.stop(histogram.count() * 2);
  for (unsigned i = 0; i < readers; ++i) round(true);
  histogram.report(run, "answer_");
  run.report("sleeps_per_answer", meter.sleeps_per_message() * 2);
  node.finish();
}

void readers_server(const Run& run, unsigned readers) {
  Node node(run, readers);
  std::vector<std::unique_ptr<Queue>> queues;
  for (unsigned i = 0; i < readers; ++i) {
    queues.push_back(std::make_unique<Queue>(node, Wait::kNotify, nullptr, 64));
    node.accept(*queues.back());
  }
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < readers; ++i) {
    threads.emplace_back([&, i] { answer_sends(run, i + 1, *queues[i], node.link(i)); });
  }
  run.barrier();
  for (std::thread& thread : threads) thread.join();
  node.finish();
}

// One queue ----------------------------------------------------------------------------------

namespace {

constexpr unsigned kDepth = 128;
constexpr unsigned kBatch = 32;

// The workload's requests that are outstanding, on all connections of a node in turn.
struct RoundRobin {
  const Run& run;
  Node& node;
  Queue& queue;
  unsigned each;  // at most so many of one connection
  std::vector<unsigned> out;
  unsigned all_out = 0;
  unsigned next = 0;
  std::uint64_t done = 0;
  bool answered = false;  // done is what is answered, not what is complete

  void reap() {
    ibv_wc wcs[kBatch];
    const unsigned count = queue.poll(wcs, kBatch);
    for (unsigned i = 0; i < count; ++i) {
      const unsigned number = Link::number_of(wcs[i]);
      if (answered && !Link::is_receive(wcs[i])) continue;
      if (answered) node.link(number).receive(wcs[i]);
      --out[number];
      --all_out;
      ++done;
    }
    if (count != 0) run.tally().messages.fetch_add(count, std::memory_order_relaxed);
  }

  void post() {
    Link& link = node.link(next);
    run.tally().awaited.store(++link.sent, std::memory_order_relaxed);
    if (answered) {
      link.send(link.sent);
    } else {
      link.write_message(link.sent);
    }
    ++out[next];
    ++all_out;
    if (++next == node.links()) next = 0;
  }

  // Keeps `depth` messages out for so long, then none.
  void go(unsigned depth, double seconds) {
    const Active active(run.tally());
    const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    unsigned until_look = 0;
    for (;;) {
      if (until_look-- == 0) {
        if (now_ns() >= end_ns) break;
        until_look = 16;
      }
      while (all_out < depth && out[next] < each) post();
      reap();
    }
    while (all_out != 0) reap();
  }
};

// The client's last Write has come, on each connection. Both come here.
void verify_writes(const Run& run, Node& node) {
  if (run.side == kClient) {
    for (unsigned i = 0; i < node.links(); ++i) run.shared.finals[i] = node.link(i).sent;
  }
  run.barrier();
  if (run.side == kServer) {
    for (unsigned i = 0; i < node.links(); ++i) {
      const std::uint64_t final = run.shared.finals[i];
      run.tally().awaited = final;
      while (node.link(i).message_word(0) != final ||
             node.link(i).message_word(kMessageWords - 1) != final) {
        nap(50);
      }
      run.tally().messages.fetch_add(1, std::memory_order_relaxed);
    }
  }
  run.barrier();
}

constexpr unsigned kPhases[] = {1, kDepth};

void measure_many(const Run& run, RoundRobin& robin) {
  for (const unsigned depth : kPhases) {
    robin.go(depth, run.options.seconds / 10);
    if (!robin.answered) verify_writes(run, robin.node);
    robin.done = 0;
    Meter meter(run);
    robin.go(depth, run.options.seconds);
    if (!robin.answered) verify_writes(run, robin.node);
    const std::string name = "depth" + std::to_string(depth) + "_";
    meter.stop(robin.done, name.c_str());
    run.report((name + "per_s").c_str(), static_cast<double>(robin.done) / meter.seconds());
  }
}

unsigned receives_for(unsigned links) { return kDepth / links + 4; }

}  // namespace

void many_writes_client(const Run& run, unsigned links) {
  Node node(run, links);
  Queue queue(node, Wait::kPoll);
  for (unsigned i = 0; i < links; ++i) node.connect(queue);
  run.barrier();
  RoundRobin robin = {run, node, queue, kDepth, std::vector<unsigned>(links)};
  measure_many(run, robin);
  node.finish();
}

void many_writes_server(const Run& run, unsigned links) {
  Node node(run, links);
  Queue queue(node, Wait::kPoll);
  for (unsigned i = 0; i < links; ++i) node.accept(queue);
  run.barrier();
  for (unsigned i = 0; i < 2 * std::size(kPhases); ++i) verify_writes(run, node);
  node.finish();
}

void many_sends_client(const Run& run, unsigned links) {
  Node node(run, links, receives_for(links));
  Queue queue(node, Wait::kPoll);
  for (unsigned i = 0; i < links; ++i) node.connect(queue);
  run.barrier();
  const unsigned each = receives_for(links) - 2;
  RoundRobin robin = {run, node, queue, each, std::vector<unsigned>(links)};
  robin.answered = true;
  measure_many(run, robin);
  run.shared.stop = 1;
  node.finish();
}

void many_sends_server(const Run& run, unsigned links) {
  Node node(run, links, receives_for(links));
  Queue queue(node, Wait::kPoll);
  for (unsigned i = 0; i < links; ++i) node.accept(queue);
  run.barrier();
  ibv_wc wcs[kBatch];
  while (run.shared.stop.load(std::memory_order_relaxed) == 0) {
    const unsigned count = queue.poll(wcs, kBatch);
    for (unsigned i = 0; i < count; ++i) {
      if (!Link::is_receive(wcs[i])) continue;
      Link& link = node.link(Link::number_of(wcs[i]));
      link.send(link.receive(wcs[i]));
    }
  }
  node.finish();
}

}  // namespace progress
