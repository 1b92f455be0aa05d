#include "check/module/hang_watch.h"

#include <signal.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "os/say.h"

namespace weft::check {

void look_now_and_then(std::chrono::milliseconds limit, std::function<void()> look) {
  using std::chrono::milliseconds;
  const milliseconds pause = std::clamp(limit / 8, milliseconds(1), milliseconds(1000));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's threads
  try {
    std::thread([pause, look = std::move(look)] {
      for (;;) {
        std::this_thread::sleep_for(pause);
        look();
      }
    }).detach();
  } catch (const std::system_error& error) {
    os::say("weft: --hang: %s\n", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace weft::check
