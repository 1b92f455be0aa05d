// How the adapter finds its object when the engine tells of one.
#include "ibverbs/async.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>

namespace weft::ibverbs {

// In place of the registry: everything has been destroyed.
std::shared_ptr<void> registry::pin(const void* /*handle*/, Kind /*kind*/) { return nullptr; }

namespace {

// An object whose program lets go of it while the adapter looks for its own.
class Leaving final : public SharedReceiveQueue {
 public:
  explicit Leaving(bool& letting_go, bool& gone) : letting_go_(letting_go), gone_(gone) {}
  ~Leaving() override { gone_ = letting_go_; }
  void owned_by(std::shared_ptr<Leaving>& program) { program_ = &program; }

  [[nodiscard]] void* context() const override {
    bool& letting_go = letting_go_;
    letting_go = true;
    program_->reset();
    letting_go = false;
    return nullptr;
  }
  Posted post_recv(std::span<const RecvWr> /*wrs*/) override { return {}; }
  [[nodiscard]] std::uint32_t posted() const override { return 0; }
  [[nodiscard]] Status set_limit(std::uint32_t /*limit*/) override { return {}; }
  [[nodiscard]] Status resize(std::uint32_t /*max_wr*/) override { return {}; }
  [[nodiscard]] std::uint32_t max_wr() const override { return 0; }
  [[nodiscard]] std::uint32_t max_sge() const override { return 0; }
  [[nodiscard]] std::uint32_t limit() const override { return 0; }
  [[nodiscard]] std::uint32_t number() const override { return 0; }
  [[nodiscard]] std::size_t users() const override { return 0; }

 private:
  bool& letting_go_;
  bool& gone_;
  std::shared_ptr<Leaving>* program_ = nullptr;
};

// Else its end would run inside the engine, with the engine's locks held.
TEST(AdapterOfAnEvent, TheProgramsShareIsTheLastOne) {
  bool letting_go = false;
  bool gone_with_the_programs = false;
  auto program = std::make_shared<Leaving>(letting_go, gone_with_the_programs);
  program->owned_by(program);
  const std::weak_ptr<SharedReceiveQueue> event = program;
  const void* const object = static_cast<const SharedReceiveQueue*>(program.get());
  EXPECT_FALSE((adapter_of<Srq, SharedReceiveQueue>(event, object)));
  EXPECT_EQ(program, nullptr);
  EXPECT_TRUE(gone_with_the_programs);
}

TEST(AdapterOfAnEvent, OneThatIsGoneHasNone) {
  const std::weak_ptr<SharedReceiveQueue> nobody;
  EXPECT_FALSE((adapter_of<Srq, SharedReceiveQueue>(nobody, &nobody)));
}

}  // namespace
}  // namespace weft::ibverbs
