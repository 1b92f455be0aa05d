#include "check/module/own_thread.h"

#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "check/module/output.h"

namespace weft::check {

void in_background(const char* option, std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& error) {
    if (option != nullptr) tell_user("weft: %s: %s\n", option, error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace weft::check
