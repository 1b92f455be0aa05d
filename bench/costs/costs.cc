// weft-costs: what registering memory costs beside mlock, and posting a request beside a system
// call. Prints JSON; bench/compare reads it.
#include "costs.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "weft/common/arguments.h"
#include "weft/common/message.h"

namespace weft::bench {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered memory_json(const std::vector<std::size_t>& sizes) {
  Ordered rows = Ordered::array();
  for (const std::size_t size : sizes) {
    const MemoryCost cost = measure_memory(size);
    rows.push_back({{"size", size},
                    {"register_us", cost.register_us},
                    {"deregister_us", cost.deregister_us},
                    {"mlock_us", cost.mlock_us ? Ordered(*cost.mlock_us) : Ordered()},
                    {"repeated", cost.repeated}});
  }
  return rows;
}

Ordered post_json(std::uint32_t trials) {
  const PostCost cost = measure_post(trials);
  return {{"post_median_ns", cost.post.median},
          {"post_mean_ns", cost.post.mean},
          {"null_call_median_ns", cost.null_call.median},
          {"null_call_mean_ns", cost.null_call.mean},
          {"clock_ns", cost.clock_ns},
          {"posts", cost.posts},
          {"bytes_placed", cost.bytes_placed}};
}

int run(int argc, char** argv) {
  cli::set_program("weft-costs");
  cli::Arguments app{"Costs of registering memory and of posting, as JSON.", "weft-costs"};
  std::vector<std::size_t> sizes{4096, 65536, 1U << 20U};
  std::uint32_t trials = 2000;
  app.add_option("--sizes", sizes, "Bytes, with commas between")
      .comma_separated()
      .between(1, std::uint64_t{1} << 36U);
  app.add_option("--trials", trials, "Times that a queue is filled with posts")
      .between(1, 1'000'000);
  if (const auto end = app.parse(argc, argv)) return *end;
  try {
    const Ordered document{{"memory", memory_json(sizes)}, {"post", post_json(trials)}};
    fmt::print("{}\n", document.dump(2));
    return 0;
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "weft-costs: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::run(argc, argv); }
