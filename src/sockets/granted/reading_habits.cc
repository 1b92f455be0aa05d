#include "sockets/granted/reading_habits.h"

namespace weft::sockets::granted {

void ReadingHabits::begin_again() {
  named_by_ = streak_ = 0;
  reported_ = 0;
  blocked_ = kernels_edge_ = false;
  left_out_ = 0;
  waits_.begin_again();
  begin_spin(look_);
}

}  // namespace weft::sockets::granted
