# Parts of the drop-in libraries that are values, without their exported names.
weft_add_test(ibverbs_test TOGETHER
  LABELS unit
  SOURCES ibverbs_async_test.cc ibverbs_event_queue_test.cc ibverbs_qp_rules_test.cc "${PROJECT_SOURCE_DIR}/src/ibverbs/errors.cc"
  DEPS weft_base Threads::Threads)
