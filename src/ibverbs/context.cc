#include "ibverbs/context.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <weft/system_error.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <string>

#include "ibverbs/async.h"
#include "ibverbs/fork_child.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"
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

// The parent's objects are not destroyed: their destructors would end its connections. The child
// gets new state, because another thread of the parent may have held any lock of the old one.
void forget_engine() {
  engine_state = new EngineState;
  registry::forget_all();
}

void print_bad_configuration(const std::string& why) { os::say("weft: %s\n", why.c_str()); }

}  // namespace

Result<std::shared_ptr<Device>> engine() {
  const os::NoCancel guard;
  on_fork_child(forget_engine);
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
  if (shakes(shake::Effect::kOrder)) (*device)->reuse_at_once();
  engine_state->device = *device;
  return device;
}

namespace {

Result<Context*> open_new_context(ibv_device* of) {
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
  pub.device = of;
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

Result<Context*> open_context(ibv_device* device) {
  const os::NoCancel guard;
  return os::guarded([device] { return open_new_context(device); });
}

}  // namespace weft::ibverbs
