"""Measures Weft and its rivals in interleaved rounds of one run, and writes one report.

    cli         options, and the order of a run
    machine     what the machine is, and whether it is idle
    packages    installs rivals from Debian packages
    process     programs with a deadline, their output and CPU time
    places      where a client and a server run: loopback or veth, in namespaces of their own
    bench       what every measurement needs, passed around
    plan        jobs: one run of one program, giving samples of some cells
    store       samples on disk; medians, and ratios round by round
    contenders  names, colors and line styles
    rivals/     one module per program: its command line, and how to read what it prints
    workloads/  one module per workload: its jobs, and its section of the report
    targets     the table of ratios that Weft wants to reach
    figure, plot, page, markdown    the report
"""
