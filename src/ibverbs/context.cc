#include "ibverbs/context.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <weft/system_error.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string>

#include "ibverbs/async.h"
#include "ibverbs/identity.h"
#include "ibverbs/registry.h"
#include "os/cancel.h"
#include "os/guarded.h"
#include "os/lock.h"
#include "os/say.h"

namespace weft::ibverbs {
namespace {

struct EngineState {
  os::Mutex mutex;
  std::shared_ptr<Device> device WEFT_GUARDED_BY(mutex);
};
EngineState* engine_state = new EngineState;

constexpr std::size_t kForkHooks = 8;
std::array<std::atomic<void (*)()>, kForkHooks> fork_hooks{};

void after_fork_in_child() {
  // The parent's objects are not destroyed: their destructors would end its connections. The child
  // gets new state, because another thread of the parent may have held any lock of the old one.
  engine_state = new EngineState;
  registry::forget_all();
  for (auto& hook : fork_hooks) {
    if (auto* forget = hook.load()) forget();
  }
}

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, after_fork_in_child); });
}

void print_bad_configuration(const std::string& why) { os::say("weft: %s\n", why.c_str()); }

}  // namespace

void on_fork_child(void (*forget)()) {
  for (auto& hook : fork_hooks) {
    void (*expected)() = nullptr;
    if (hook.compare_exchange_strong(expected, forget) || expected == forget) return;
  }
}

Result<std::shared_ptr<Device>> engine() {
  const os::NoCancel guard;
  watch_forks();
  const os::MutexLock lock(engine_state->mutex);
  if (engine_state->device != nullptr) return engine_state->device;
  std::string why;
  const Result<Config> config = Config::load(&why);
  if (!config) {
    if (config.error() == Error::kInvalidArgument) print_bad_configuration(why);
    return fail(config.error());
  }
  Result<std::shared_ptr<Device>> device = Device::open(*config);
  if (!device) return device;
  (*device)->set_async_sink(deliver_async);
  engine_state->device = *device;
  return device;
}

namespace {

Result<Context*> open_new_context() {
  if (auto known = learn_look(); !known) return fail(known.error());
  Result<std::shared_ptr<Device>> device = engine();
  if (!device) return fail(device.error());
  auto context = std::make_shared<Context>();
  context->engine = std::move(*device);
  const auto events = std::make_shared<AsyncQueue>();
  {
    const os::MutexLock lock(context->async_mutex);
    context->async_queue = events;
  }
  // Programs only check that cmd_fd is a descriptor; a real one, so that closing or passing it on
  // cannot hit something else.
  if (!events->valid()) return fail(system_error(errno));
  context->command = os::Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!context->command) return fail(system_error(errno));
  verbs_context& verbs = context->verbs;
  set_operations(verbs);
  verbs.sz = sizeof verbs;
  verbs.priv = reinterpret_cast<verbs_ex_private*>(context.get());
  ibv_context& pub = verbs.context;
  pub.device = weft_device();
  pub.cmd_fd = context->command.get();
  pub.async_fd = events->fd();
  pub.num_comp_vectors = 1;
  pthread_mutex_init(&pub.mutex, nullptr);
  pub.abi_compat = __VERBS_ABI_IS_EXTENDED;
  Context* raw = context.get();
  registry::add(raw->handle(), std::move(context));
  return raw;
}

}  // namespace

Result<Context*> open_context() {
  const os::NoCancel guard;
  return os::guarded(open_new_context);
}

}  // namespace weft::ibverbs
