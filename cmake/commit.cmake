# Writes the commit that a program is built from, for its results: cmake -DSOURCE=DIR -DOUT=FILE -P commit.cmake
# The file changes only with the commit; "unknown" where the sources are no checkout of their own.
set(commit unknown)
execute_process(COMMAND git rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE}
                OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
file(REAL_PATH ${SOURCE} source)
if(failed EQUAL 0 AND top STREQUAL source)
  execute_process(COMMAND git describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed EQUAL 0)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define LONGHEADS_COMMIT \"${commit}\"\n")
