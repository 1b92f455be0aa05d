// A thread of the module's own.
#pragma once

#include <functional>

namespace weft::check {

// Does `work` in a thread that gets no signals: they are for the program's. Where there can be none
// that is said, with the `option` of `weft run` that it was for.
void in_background(const char* option, std::function<void()> work);

}  // namespace weft::check
