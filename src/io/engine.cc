#include "io/engine.h"

#include <cassert>
#include <new>
#include <utility>

#include "io/engine_core.h"

namespace weft::io {

Result<std::unique_ptr<Engine>> Engine::create() {
  auto core = std::make_shared<EngineCore>();
  if (auto ready = core->init(); !ready) return fail(ready.error());
  return std::unique_ptr<Engine>(new Engine(std::move(core)));
}

Engine::~Engine() {
  core_->stop();
  if (core_->forked()) {
    // fork() copied neither the thread nor the threads that held a lock or waited on a condition.
    // So nothing here can be destroyed safely, and it is kept.
    [[maybe_unused]] const auto* kept =
        new (std::nothrow) std::shared_ptr<EngineCore>(std::move(core_));
    assert(kept != nullptr);
  }
}

Status Engine::add(int fd, std::uint32_t events, std::weak_ptr<Handler> handler) {
  if (core_->forked()) return fail(Error::kBadState);
  return os::guarded([&] { return core_->add(fd, events, std::move(handler)); });
}

Status Engine::modify(int fd, std::uint32_t events) {
  if (core_->forked()) return fail(Error::kBadState);
  return core_->modify(fd, events);
}

Status Engine::give(int fd, std::weak_ptr<Handler> handler) {
  if (core_->forked()) return fail(Error::kBadState);
  return core_->give(fd, std::move(handler));
}

void Engine::remove(int fd) {
  if (!core_->forked()) core_->forget(fd, true);
}

void Engine::forget(int fd) {
  if (!core_->forked()) core_->forget(fd, false);
}

TimerId Engine::schedule(Instant when, std::weak_ptr<Handler> handler) {
  if (core_->forked() || when.is_never()) return 0;
  const auto id =
      os::guarded([&]() -> Result<TimerId> { return core_->schedule(when, std::move(handler)); });
  return id.value_or(0);
}

void Engine::cancel(TimerId id) {
  if (!core_->forked() && id != 0) core_->cancel(id, true);
}

void Engine::forget_timer(TimerId id) {
  if (!core_->forked() && id != 0) core_->cancel(id, false);
}

void Engine::wait_for(const Handler* handler) {
  if (!core_->forked()) core_->wait_for(handler);
}

Status Engine::post_function(std::function<void()> task) {
  if (core_->forked()) return fail(Error::kBadState);
  return core_->post(std::move(task));
}

bool Engine::on_thread() const noexcept { return core_->on_thread(); }
std::uint64_t Engine::wakeups() const noexcept { return core_->wakeups(); }
bool Engine::running() const noexcept { return core_->running(); }

}  // namespace weft::io
