# Evaluates setup, completion and tests one after another; descriptor 3 holds the word that proves the end.
use strict 'subs';
sub PROCTOR_NAME { eval $_[0]; die $@ if ref \$@ eq "REF" || $@ ne ""; 1 }
{
    my $place = "/proc/self/fd/3";
    my $read = sub { local $/; open(my $file, "<", $_[0]) or CORE::die("$_[0]: $!"); scalar <$file> };
    my $word = $read->($place);
    truncate($place, 0);
    my ($setup, $solution, $tests) = map { "#line 1 \"$_\"\n" . ($read->($_) // "") } qw(setup.pl solution.pl tests.pl);
    PROCTOR_NAME($setup);
    PROCTOR_NAME($solution);
    # The tests' own `die` and `exit`, also where the completion has imported others.
    delete $CORE::GLOBAL::{$_} for keys %CORE::GLOBAL::;
    delete $main::{$_} for qw(die exit);
    PROCTOR_NAME($tests);
    my $builder = $INC{"Test/Builder.pm"} ? Test::More->builder : undef;
    if (!$builder || $builder->is_passing) {
        open(my $file, ">", $place);
        print $file "$word\n";
        close($file);
    }
}
