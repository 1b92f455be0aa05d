// A small Read beside large ones, and connections that come and go.
#include <string.h>
#include <sys/mman.h>

#include "node.h"
#include "pingpong.h"
#include "workloads.h"

namespace progress {

namespace {

constexpr std::size_t kLargeBytes = 1 << 20;
constexpr unsigned kLargeReads = 8;  // outstanding
constexpr std::size_t kAreaBytes = kLargeBytes * kLargeReads;

// The contents of the served memory.
std::uint64_t word_at(std::size_t index) { return (index + 1) * 0x9e3779b97f4a7c15; }

struct Area {
  Area(const Node& node, int access) {
    void* memory =
        mmap(nullptr, kAreaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("no memory");
    memset(memory, 0, kAreaBytes);
    words = static_cast<std::uint64_t*>(memory);
    mr = node.register_memory(memory, kAreaBytes, access);
  }
  ~Area() {
    ibv_dereg_mr(mr);
    munmap(words, kAreaBytes);
  }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  std::uint64_t* words;
  ibv_mr* mr;
};

// Reads of one side: link 0 has small ones, one at a time; link 1 streams.
struct Reader {
  const Run& run;
  Node& node;
  Queue& queue;
  Area& area;
  Area& small;
  std::uint64_t address;
  std::uint32_t rkey;
  std::size_t index = 0;
  bool small_out = false;
  unsigned large_out = 0;
  unsigned next_large = 0;
  std::uint64_t large_done = 0;

  void begin_large() {
    const std::size_t offset = next_large * kLargeBytes;
    std::uint64_t* to = area.words + offset / 8;
    to[0] = 0;
    to[kLargeBytes / 8 - 1] = 0;
    node.link(1).read(to, area.mr->lkey, kLargeBytes, address + offset, rkey);
    next_large = (next_large + 1) % kLargeReads;
    ++large_out;
  }

  // Requests of a connection complete in their order.
  void end_large() {
    const std::size_t oldest = (next_large + kLargeReads - large_out) % kLargeReads;
    const std::size_t first = oldest * kLargeBytes / 8;
    const std::size_t last = first + kLargeBytes / 8 - 1;
    if (area.words[first] != word_at(first) || area.words[last] != word_at(last)) {
      die("a large Read brought wrong octets");
    }
    --large_out;
    ++large_done;
  }

  void begin_small() {
    index = (index + 1) % 1024;
    small.words[0] = 0;
    node.link(0).read(small.words, small.mr->lkey, 8, address + index * 8, rkey);
    small_out = true;
  }

  void reap() {
    ibv_wc wcs[8];
    const unsigned count = queue.poll(wcs, 8);
    for (unsigned i = 0; i < count; ++i) {
      run.tally().messages.fetch_add(1, std::memory_order_relaxed);
      if (Link::number_of(wcs[i]) == 1) {
        end_large();
        continue;
      }
      if (small.words[0] != word_at(index)) die("a small Read brought wrong octets");
      small_out = false;
    }
  }

  void round(unsigned large) {
    begin_small();
    while (small_out) {
      while (large_out < large) begin_large();
      reap();
    }
  }
};

}  // namespace

void small_read_client(const Run& run, unsigned /*unused*/) {
  Node node(run, 2);
  Queue queue(node, Wait::kPoll);
  node.connect(queue);
  node.connect(queue);
  run.barrier();
  Area area(node, IBV_ACCESS_LOCAL_WRITE);
  Area small(node, IBV_ACCESS_LOCAL_WRITE);
  Reader reader = {run,
                   node,
                   queue,
                   area,
                   small,
                   run.shared.finals[0],
                   static_cast<std::uint32_t>(run.shared.finals[1])};
  for (const unsigned large : {0U, kLargeReads}) {
    const auto round = [&](bool) { reader.round(large); };
    Histogram warmup;
    ping(warmup, run.options.seconds / 10, run.tally(), round);
    Histogram histogram;
    reader.large_done = 0;
    Meter meter(run);
    ping(histogram, run.options.seconds, run.tally(), round);
    meter.stop(histogram.count() + reader.large_done, large == 0 ? "alone_" : "beside_");
    histogram.report(run, large == 0 ? "alone_" : "beside_");
    if (large == 0) continue;
    run.report("large_mib_per_s", static_cast<double>(reader.large_done) / meter.seconds());
  }
  while (reader.large_out != 0) reader.reap();
  node.finish();
}

void small_read_server(const Run& run, unsigned /*unused*/) {
  Node node(run, 2);
  Queue queue(node, Wait::kPoll);
  node.accept(queue);
  node.accept(queue);
  Area area(node, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  for (std::size_t i = 0; i < kAreaBytes / 8; ++i) area.words[i] = word_at(i);
  run.shared.finals[0] = reinterpret_cast<std::uint64_t>(area.words);
  run.shared.finals[1] = area.mr->rkey;
  run.barrier();
  node.finish();
}

// Connections --------------------------------------------------------------------------------

void setup_client(const Run& run, unsigned /*unused*/) {
  Node node(run, 1);
  Queue queue(node, Wait::kPoll);
  run.barrier();
  const auto round = [&](bool last) {
    Link& link = node.connect(queue);
    ping_by_send(run, 0, queue, link, last);
    node.close(link, queue);
  };
  Histogram warmup;
  ping(warmup, run.options.seconds / 10, run.tally(), round);
  Histogram histogram;
  Meter meter(run);
  ping(histogram, run.options.seconds, run.tally(), round);
  meter.stop(histogram.count());
  round(true);
  run.report("per_s", static_cast<double>(histogram.count()) / meter.seconds());
  histogram.report(run, "");
  node.finish();
}

void setup_server(const Run& run, unsigned /*unused*/) {
  Node node(run, 1);
  Queue queue(node, Wait::kPoll);
  run.barrier();
  std::uint64_t value = 0;
  while ((value & kLast) == 0) {
    Link& link = node.accept(queue);
    run.tally().awaited.fetch_add(1, std::memory_order_relaxed);
    value = await_message(queue, link);
    link.send(value);
    node.await_disconnect(link);
    node.close(link, queue);
  }
  node.finish();
}

}  // namespace progress
