// `weft run --check --hang TIME`: a thread that looks now and then whether anything goes on.
#pragma once

#include <chrono>
#include <functional>

namespace weft::check {

// Has a thread call `look`, often enough to notice within an eighth of `limit`, until the process
// ends; in a child of fork() nobody does. Once. Without a thread it is said on stderr.
void look_now_and_then(std::chrono::milliseconds limit, std::function<void()> look);

}  // namespace weft::check
