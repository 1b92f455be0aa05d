foreach(parser ddp mpa_startup rdmap terminate ulpdu)
  weft_add_fuzzer(fuzz_wire_${parser}
    SOURCES wire_${parser}.cc
    DEPS weft_wire
    CORPUS corpus/wire_${parser})
endforeach()
