weft_add_test(io_ring_test
  LABELS unit
  SOURCES io_path_transport_test.cc io_ring_test.cc io_ring_handover_test.cc io_ring_hostile_test.cc
          io_ring_privileges_test.cc io_ring_spare_test.cc
  DEPS weft_io fmt::fmt Threads::Threads)
