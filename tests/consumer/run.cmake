# Installs the build into a fresh prefix, moves nothing by hand, then builds and runs what a user would
# against it: the consumer, and the examples.
# Variables: BUILD (our build folder), SOURCE (the project's), WORK (scratch), GENERATOR, PREFIX_PATH,
# PYTHON (one with libclang).
file(REMOVE_RECURSE "${WORK}")
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()
function(build_project folder name)  # further arguments: for CMake
  step(${CMAKE_COMMAND} -S "${SOURCE}/${folder}" -B "${WORK}/${name}" -G "${GENERATOR}" -DCMAKE_BUILD_TYPE=Release
       "-DCMAKE_PREFIX_PATH=${WORK}/prefix;${PREFIX_PATH}" ${ARGN})
  step(${CMAKE_COMMAND} --build "${WORK}/${name}")
endfunction()

step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")

build_project(tests/consumer consumer "-DPYTHON=${PYTHON}")
step("${WORK}/consumer/consumer")
step("${WORK}/consumer/every_function")

build_project(examples/cpp examples)
step("${WORK}/examples/own_block" 20)
step("${WORK}/examples/classify" "${WORK}/prefix/share/sape2/models/cifar10-sape2-rel-k.safetensors"
     "${SOURCE}/examples/images/ship.png")
# A mistake is one sentence and a non-zero exit code.
execute_process(COMMAND "${WORK}/examples/classify" "${WORK}/none.safetensors" none.png
                RESULT_VARIABLE code ERROR_VARIABLE sentence)
if(NOT code EQUAL 1 OR NOT sentence MATCHES "^classify: [^\n]*none.safetensors[^\n]*\n$")
  message(FATAL_ERROR "classify answered a missing model with exit code ${code} and '${sentence}'")
endif()
