#include <sys/mman.h>
#include <weft/device.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <numeric>
#include <stdexcept>
#include <string>

#include "costs.h"

namespace weft::bench {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytesPerSize = std::size_t{2} << 30U;  // registered in all, at each size

class Mapping {
 public:
  explicit Mapping(std::size_t size)
      : size_(size),
        at_(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) {
      throw std::runtime_error("cannot map " + std::to_string(size) +
                               " bytes: " + std::strerror(errno));
    }
    for (std::size_t i = 0; i < size; i += kPage) static_cast<volatile char*>(at_)[i] = 1;
  }
  ~Mapping() { munmap(at_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] void* get() const { return at_; }

 private:
  std::size_t size_;
  void* at_;
};

double since_us(std::int64_t start) { return static_cast<double>(now_ns() - start) / 1e3; }

std::optional<double> measure_mlock(void* at, std::size_t size, std::uint32_t times) {
  std::vector<double> samples;
  for (std::uint32_t i = 0; i < times; ++i) {
    const std::int64_t start = now_ns();
    if (mlock(at, size) != 0) return std::nullopt;
    samples.push_back(since_us(start));
    munlock(at, size);
  }
  return median_of(samples);
}

}  // namespace

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

double median_of(std::vector<double>& samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

double mean_of(const std::vector<double>& samples) {
  if (samples.empty()) return 0;
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

MemoryCost measure_memory(std::size_t size) {
  const Mapping memory(size);
  const auto device = Device::open(Config{});
  if (!device) throw std::runtime_error("cannot open the device");
  const auto pd = (*device)->create_pd();
  if (!pd) throw std::runtime_error("cannot create a protection domain");
  MemoryCost cost;
  cost.repeated =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kBytesPerSize / size, 3, 1000));
  std::vector<double> on;
  std::vector<double> off;
  for (std::uint32_t i = 0; i < cost.repeated; ++i) {
    std::int64_t start = now_ns();
    auto region =
        (*pd)->register_memory(memory.get(), size, Access::kLocalWrite | Access::kRemoteWrite);
    on.push_back(since_us(start));
    if (!region) throw std::runtime_error("cannot register " + std::to_string(size) + " bytes");
    start = now_ns();
    if (!(*region)->deregister()) throw std::runtime_error("cannot deregister");
    off.push_back(since_us(start));
  }
  cost.register_us = median_of(on);
  cost.deregister_us = median_of(off);
  cost.mlock_us = measure_mlock(memory.get(), size, std::min(cost.repeated, 100U));
  return cost;
}

}  // namespace weft::bench
