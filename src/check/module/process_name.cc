#include "check/module/process_name.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace weft::check {

std::string rank_of_process() {
  for (const char* name :
       {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK", "WEFT_LAB_RANK"}) {
    if (const char* value = std::getenv(name)) return value;
  }
  return {};
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace weft::check
