#include "check/module/hang_watch.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "check/module/own_thread.h"

namespace weft::check {

void look_now_and_then(std::chrono::milliseconds limit, std::function<void()> look) {
  using std::chrono::milliseconds;
  const milliseconds pause = std::clamp(limit / 8, milliseconds(1), milliseconds(1000));
  in_background("--hang", [pause, look = std::move(look)] {
    for (;;) {
      std::this_thread::sleep_for(pause);
      look();
    }
  });
}

}  // namespace weft::check
