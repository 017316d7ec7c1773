# Installs the build into a fresh prefix, moves nothing by hand, then builds and runs the consumer.
# Variables: BUILD (our build folder), SOURCE (this folder), WORK (scratch), GENERATOR, PREFIX_PATH.
file(REMOVE_RECURSE "${WORK}")
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()
step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
step(${CMAKE_COMMAND} -S "${SOURCE}" -B "${WORK}/build" -G "${GENERATOR}" -DCMAKE_BUILD_TYPE=Release
     "-DCMAKE_PREFIX_PATH=${WORK}/prefix;${PREFIX_PATH}")
step(${CMAKE_COMMAND} --build "${WORK}/build")
step("${WORK}/build/consumer")
