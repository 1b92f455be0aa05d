weft_add_fuzzer(fuzz_exs_messages
  SOURCES exs_messages.cc
  DEPS weft_exs_rules
  CORPUS corpus/exs_messages)
weft_add_fuzzer(fuzz_exs_stream
  SOURCES exs_stream.cc
  DEPS weft_exs_rules
  CORPUS corpus/exs_stream)
