// One rank of gloo's collective algorithms over its ibverbs transport, each checked.
//
//   gloo_collectives FOLDER RANK SIZE ALGORITHM COUNT
//
// FOLDER is shared by the ranks: by files in it they find each other. Ends with 0 when every
// element is what it has to be, three times in a row.
#include <gloo/allgather_ring.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/pairwise_exchange.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 3;

struct Job {
  std::shared_ptr<gloo::Context> context;
  int count = 0;

  [[nodiscard]] int rank() const { return context->rank; }
  [[nodiscard]] int size() const { return context->size; }
  // What `rank` brings in `round` at `index`; small, so that sums are exact.
  [[nodiscard]] float brings(int rank, int index, int round) const {
    return static_cast<float>((rank + 1) * (index % 97 + round + 1));
  }
  [[nodiscard]] float sum(int index, int round) const {
    float out = 0;
    for (int i = 0; i < size(); ++i) out += brings(i, index, round);
    return out;
  }
};

// Whether all elements are what they have to be. Behind it all ranks have looked: the next round
// writes into their memory.
bool same(const Job& job, const std::vector<float>& got, const std::function<float(int)>& wanted) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float want = wanted(static_cast<int>(i));
    if (got[i] == want) continue;
    std::fprintf(stderr, "element %zu is %g, not %g\n", i, got[i], want);
    return false;
  }
  static auto& barrier = *new gloo::BarrierAllToAll(job.context);
  barrier.run();
  return true;
}

template <typename Algorithm>
bool reduces(const Job& job) {
  std::vector<float> data(job.count);
  auto& algorithm = *new Algorithm(job.context, {data.data()}, job.count);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < job.count; ++i) data[i] = job.brings(job.rank(), i, round);
    algorithm.run();
    if (!same(job, data, [&](int i) { return job.sum(i, round); })) return false;
  }
  return true;
}

bool broadcasts(const Job& job) {
  std::vector<float> data(job.count);
  auto& algorithm = *new gloo::BroadcastOneToAll<float>(job.context, {data.data()}, job.count, 1);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < job.count; ++i) data[i] = job.brings(job.rank(), i, round);
    algorithm.run();
    if (!same(job, data, [&](int i) { return job.brings(1, i, round); })) return false;
  }
  return true;
}

bool gathers(const Job& job) {
  std::vector<float> mine(job.count);
  std::vector<float> all(static_cast<std::size_t>(job.count) * job.size());
  auto& algorithm =
      *new gloo::AllgatherRing<float>(job.context, {mine.data()}, all.data(), job.count);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < job.count; ++i) mine[i] = job.brings(job.rank(), i, round);
    algorithm.run();
    if (!same(job, all, [&](int i) { return job.brings(i / job.count, i % job.count, round); })) {
      return false;
    }
  }
  return true;
}

template <typename Algorithm>
bool waits(const Job& job) {
  auto& algorithm = *new Algorithm(job.context);
  for (int i = 0; i < job.count; ++i) algorithm.run();
  return true;
}

bool exchanges(const Job& job) {
  auto& algorithm = *new gloo::PairwiseExchange(job.context, job.count * 4, 1);
  for (int round = 0; round < kRounds; ++round) algorithm.run();
  return true;
}

// Nobody goes before all are done. gloo destroys nothing in peace: its buffers throw while a
// completion of theirs is on its way, and its algorithms do not wait for the last one. So they are
// not destroyed.
void wait_for_all(const std::string& folder, int rank, int size) {
  std::ofstream(folder + "/done." + std::to_string(rank)).put('.');
  for (int i = 0; i < size; ++i) {
    while (!std::filesystem::exists(folder + "/done." + std::to_string(i))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

const std::map<std::string, std::function<bool(const Job&)>> kAlgorithms = {
    {"allreduce_ring", reduces<gloo::AllreduceRing<float>>},
    {"allreduce_ring_chunked", reduces<gloo::AllreduceRingChunked<float>>},
    {"allreduce_halving_doubling", reduces<gloo::AllreduceHalvingDoubling<float>>},
    {"allreduce_bcube", reduces<gloo::AllreduceBcube<float>>},
    {"broadcast", broadcasts},
    {"allgather", gathers},
    {"barrier_all_to_all", waits<gloo::BarrierAllToAll>},
    {"barrier_all_to_one", waits<gloo::BarrierAllToOne>},
    {"pairwise_exchange", exchanges},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 || kAlgorithms.count(argv[4]) == 0) return 2;
  gloo::transport::ibverbs::attr attr{};
  attr.name = "weft0";
  attr.port = 1;
  attr.index = 0;
  auto device = gloo::transport::ibverbs::CreateDevice(attr);
  gloo::rendezvous::FileStore store(argv[1]);
  const auto context =
      std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[2]), std::atoi(argv[3]));
  context->connectFullMesh(store, device);
  const bool good = kAlgorithms.at(argv[4])(Job{context, std::atoi(argv[5])});
  std::printf("%s\n", good ? "good" : "wrong");
  std::fflush(stdout);
  if (good) wait_for_all(argv[1], context->rank, context->size);
  std::_Exit(good ? 0 : 1);
}
