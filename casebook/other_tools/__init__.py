"""What other tools say of the casebook's faulty programs, classified by one rule.

Whatever a tool says is read as remarks: a kind, a line or none, a severity. Of the faulty program it says

- *named*: a remark of a kind that speaks of the fault's subject (`judging.SUBJECTS`) at an accepted line, or without
  any line; or at another line, where the tool says nothing of that kind of the fixed program;
- *line*: another remark at an accepted line;
- *elsewhere*: neither, but something at warning or above;
- *silent*: nothing at warning or above;
- *not run*: it cannot be run here, with the reason.

The rule leans to the tool. An accepted line is any that the case accepts of torchvet; the severity is not asked about;
whether a remark about the subject is also made of healthy programs is asked only where the line is wrong.

What counts as a remark:

- `TorchFix`, `torch-preflight`, `mldoct` read source: their own remarks (`benchmarks/rivals.py` reads them);
- `detect_anomaly`: each traceback of autograd's anomaly mode, at the program's innermost frame: *nan-gradient*;
- `memray`: the three lines of the program with most memory that is still allocated when the program has ended
  (*alive-at-end*) and the three with most at the peak (*at-peak*), at any frame of the program's on the way, what
  imports allocate left out. Neither names a cause;
- `scalene`: the lines that its leak detector lists: *leak*; the three with the highest peak: *memory*; the three with
  most processor time: *time*;
- `traceml-ai`: the diagnosis and issues of its final summary, by their kind, in lower case. Its step is taken from one
  optimizer step to the next, which a user has to write into such programs by hand;
- `gpuprof`: the insights of its report, by the words of `tools.INSIGHTS`. Without a GPU it makes up the GPU's figures.

Programs made for a GPU cannot be run under tools that watch runs, on a machine without one.
"""
