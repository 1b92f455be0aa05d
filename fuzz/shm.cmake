weft_add_fuzzer(fuzz_shm_ring
  SOURCES shm_ring.cc
  DEPS weft_shm
  CORPUS corpus/shm_ring)
