weft_add_fuzzer(fuzz_io_ring
  SOURCES io_ring.cc
  DEPS weft_io
  CORPUS corpus/io_ring)
